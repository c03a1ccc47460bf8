import { type Cause, causeNamed, whyNoJob } from '../explain/causes.ts';
import { type Explanation, renderExplanation } from '../explain/explain.ts';
import { NO_CLASS, NOT_ANNOTATED } from '../explain/pending-index.ts';
import { explainOne } from '../explain/report.ts';
import type { KubeClient } from '../kube/client.ts';
import type { Claim, Class, Volume } from '../kube/objects.ts';
import { claims, classes, keyOf, volumes } from '../kube/resources.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import { showDoubts } from '../queue/run.ts';
import { queueName } from '../queue/queue-keys.ts';
import { listDrivers } from '../queue/queues.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { systemClock } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { traceId } from '../runtime/trace-id.ts';
import { classNameOf, shouldProvision, waitsForPod } from '../volumes/eligibility.ts';
import { isKnownAs } from '../volumes/driver-facts.ts';
import { commandMain, type Means, Refusal, type Result } from './command.ts';
import { explain } from './flags.ts';
import { WHERE_IT_LEADS } from './installation.ts';

/** Says why a claim is pending. */
export const main = commandMain(explain, run);

async function run({ context, openRedis, openKube }: Means<typeof explain.flags>): Promise<Result> {
  const { flags, words } = context;
  const refs = words.map((word) => parseClaim(word, flags.namespace));
  if (refs.length === 0) throw new UsageError('name a claim: sutler explain NAMESPACE/CLAIM');
  const kube = await openKube();
  const installation = { redis: await openRedis(), prefix: flags.redisPrefix };
  const found: Explanation[] = [];
  for (const ref of refs) {
    const claim = await kube.get<Claim>(claims, ref);
    if (claim === undefined)
      throw new Refusal(`there is no claim ${keyOf(ref)}: kubectl get pvc -A`);
    const byVolume = await explainByVolume(kube, claim);
    const explanation = byVolume ?? (await explainByClass(kube, installation, claim));
    found.push(await addDoubt(explanation, installation));
  }
  const nowMs = systemClock.nowMs();
  return {
    status: 0,
    lines: found.flatMap((each) => renderExplanation(each, nowMs)),
    json: { claims: found.map((each) => ({ ...each, trace: traceId(each.uid) })) },
  };
}

/** @param namespace  of a claim without one; '' for default */
function parseClaim(word: string, namespace: string) {
  const [, own = namespace, name] = /^(?:([^/]+)\/)?([^/]+)$/.exec(word) ?? [];
  if (name === undefined) throw new UsageError(`"${word}" names no claim: write NAMESPACE/CLAIM`);
  return { namespace: own || 'default', name };
}

/** @returns undefined for a claim that names no PersistentVolume */
async function explainByVolume(kube: KubeClient, claim: Claim): Promise<Explanation | undefined> {
  const name = claim.spec.volumeName ?? '';
  if (name === '') return undefined;
  const volume = await kube.get<Volume>(volumes, { name });
  if (volume === undefined)
    return explained(claim, causeNamed('Lost', `its PersistentVolume ${name} does not exist`));
  const isBound = claim.status?.phase === 'Bound';
  const verb = isBound ? 'Bound to' : 'names';
  const created = volume.metadata.creationTimestamp ?? '';
  const sentence = `${verb} PersistentVolume ${name}, created ${created}`;
  const cause = causeNamed(isBound ? 'Bound' : 'Binding', sentence);
  return explained(claim, cause, volume.spec.csi?.driver);
}

type Installation = Pick<RedisPlace, 'redis' | 'prefix'>;

/** Adds until when a call may be at work in the driver: a deletion waits for that time. */
async function addDoubt(
  explanation: Explanation,
  installation: Installation,
): Promise<Explanation> {
  const { driver, uid } = explanation;
  if (driver === '') return explanation;
  const [leftMs = 0] = await showDoubts(installation, queueName('claim', driver), [uid]);
  return leftMs > 0
    ? { ...explanation, inDoubtUntilMs: systemClock.nowMs() + leftMs }
    : explanation;
}

async function explainByClass(
  kube: KubeClient,
  { redis, prefix }: Installation,
  claim: Claim,
): Promise<Explanation> {
  const className = classNameOf(claim);
  if (className === '' && claim.spec.storageClassName !== undefined) {
    const sentence = 'it asks for an existing PersistentVolume (class "")';
    return explained(claim, causeNamed('NoProvisioning', sentence));
  }
  const cls = className === '' ? undefined : await kube.get<Class>(classes, { name: className });
  if (cls === undefined) return explained(claim, whyNoJob(NO_CLASS, className));
  const drivers = await listDrivers(redis, prefix);
  if (drivers.length === 0) {
    const sentence = `no ingest with this Redis and --redis-prefix=${prefix} serves a driver yet`;
    return explained(claim, causeNamed('NoLeader', sentence, WHERE_IT_LEADS), cls.provisioner);
  }
  const known = drivers.map((name) => ({ name, inTreeName: inTreeNameOf(name) }));
  const driver = known.find((each) => isKnownAs(each, cls.provisioner));
  if (driver === undefined) {
    const sentence =
      `class ${className} belongs to ${cls.provisioner}, which no sutler of this Redis serves ` +
      `(it serves ${drivers.join(', ')})`;
    return explained(claim, causeNamed('OtherDriver', sentence), cls.provisioner);
  }
  const isOurs = shouldProvision(claim, driver, () => cls).kind !== 'ignore';
  if (!isOurs && waitsForPod(claim, cls)) {
    const sentence = 'it waits for the first pod that uses it';
    return explained(claim, causeNamed('WaitForFirstConsumer', sentence), driver.name);
  }
  const { uid, namespace = '', name, creationTimestamp = '' } = claim.metadata;
  const key = { kind: 'claim', uid, namespace, name } as const;
  const sinceMs = Date.parse(creationTimestamp);
  const entry = { key, className, sinceMs, why: isOurs ? '' : NOT_ANNOTATED } as const;
  return explainOne({ redis, prefix, driver: driver.name }, entry, systemClock.nowMs());
}

function explained(claim: Claim, cause: Cause, driver = ''): Explanation {
  const { uid, creationTimestamp } = claim.metadata;
  const sinceMs = creationTimestamp === undefined ? undefined : Date.parse(creationTimestamp);
  const className = classNameOf(claim);
  return { kind: 'claim', uid, object: keyOf(claim.metadata), className, driver, cause, sinceMs };
}
