import type { Redis } from 'ioredis';
import { type Cause, causeNamed, whyNoJob } from '../explain/causes.ts';
import { type Explanation, renderExplanation } from '../explain/explain.ts';
import { NO_CLASS, NOT_ANNOTATED } from '../explain/pending-index.ts';
import { explainOne } from '../explain/report.ts';
import { listJournal } from '../journal/list-journal.ts';
import type { KubeClient } from '../kube/client.ts';
import type { Claim, Class, Volume } from '../kube/objects.ts';
import { claims, classes, keyOf, volumes } from '../kube/resources.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import { showDoubts } from '../queue/doubt.ts';
import { queueName } from '../queue/queue-keys.ts';
import { listDrivers } from '../queue/queues.ts';
import { systemClock } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { traceId } from '../runtime/trace-id.ts';
import { classNameOf, shouldProvision, waitsForPod } from '../volumes/eligibility.ts';
import { isKnownAs } from '../volumes/driver-facts.ts';
import { commandMain, type Means, Refusal, type Result, WHERE_IT_LEADS } from './command.ts';
import { explain } from './flags.ts';
import { journalPlace } from './journal-place.ts';
import { lookUntilItLasts, repeat } from './repeat.ts';

/** Says why a claim is pending. */
export const main = commandMain({ name: 'explain', ...explain }, run);

async function run(means: Means<typeof explain.flags>): Promise<Result> {
  const { context, openRedis, openKube } = means;
  const { flags, words } = context;
  const refs = words.map((word) => parseClaim(word, flags.namespace));
  if (refs.length === 0) throw new UsageError('name a claim: sutler explain NAMESPACE/CLAIM');
  const kube = await openKube(flags);
  let opening: Promise<Redis> | undefined;
  const redis = (): Promise<Redis> => (opening ??= openRedis());
  const look = async (): Promise<readonly Explanation[]> => {
    const nowMs = systemClock.nowMs();
    const found: Explanation[] = [];
    for (const ref of refs) found.push(await explainClaim(means, { kube, redis, nowMs }, ref));
    return found;
  };
  return repeat(means, async () => {
    const found = await lookUntilItLasts(look, context.stopping);
    const nowMs = systemClock.nowMs();
    return {
      status: 0,
      lines: found.flatMap((each) => renderExplanation(each, nowMs)),
      json: { claims: found.map((each) => ({ ...each, trace: traceId(each.uid) })) },
      facts: found.map(factsOf),
    };
  });
}

/** What an explanation says, without ages. */
function factsOf({ cause, status, isRunning, inDoubtUntilMs }: Explanation): readonly unknown[] {
  return [cause.name, cause.sentence, status?.reason, isRunning, inDoubtUntilMs === undefined];
}

interface Look {
  readonly kube: KubeClient;
  /** Connects when it is first needed. */
  readonly redis: () => Promise<Redis>;
  readonly nowMs: number;
}

type ClaimRef = Readonly<Record<'namespace' | 'name', string>>;

/** @throws Refusal if there is no such claim */
async function explainClaim(
  means: Means<typeof explain.flags>,
  { kube, redis, nowMs }: Look,
  ref: ClaimRef,
): Promise<Explanation> {
  const { redisPrefix: prefix } = means.context.flags;
  const claim = await kube.get<Claim>(claims, ref);
  if (claim === undefined) {
    const vanished = await explainVanished(means, kube, await redis(), ref);
    if (vanished !== undefined) return vanished;
    throw new Refusal(`there is no claim ${ref.namespace}/${ref.name}: kubectl get pvc -A`);
  }
  const byVolume = await explainByVolume(kube, claim);
  if (byVolume !== undefined) return withDoubt(byVolume, redis, prefix);
  return explainByClass(kube, { redis: await redis(), prefix }, { claim, nowMs });
}

/** Explains a claim that is gone while the journal has it: its volume is brought to an end.
 * @returns undefined if no journal has it */
async function explainVanished(
  { context }: Means<typeof explain.flags>,
  kube: KubeClient,
  redis: Redis,
  ref: ClaimRef,
): Promise<Explanation | undefined> {
  const { redisPrefix: prefix } = context.flags;
  for (const driver of await listDrivers(redis, prefix)) {
    const entries = await listJournal(kube, await journalPlace(context, redis, driver));
    const found = entries.find(({ claim }) => keyOf(claim.metadata) === keyOf(ref));
    if (found === undefined) continue;
    const key = { kind: 'claim', uid: found.uid, ...ref } as const;
    const entry = { key, className: classNameOf(found.claim), sinceMs: 0, why: '' } as const;
    const nowMs = systemClock.nowMs();
    const explanation = await explainOne({ redis, prefix, driver }, entry, nowMs);
    const sentence = `the claim is gone, and sutler brings to an end what it began for it: ${explanation.cause.sentence}`;
    return { ...explanation, cause: { ...explanation.cause, sentence }, sinceMs: undefined };
  }
  return undefined;
}

/** @param namespace  of -n; '' if it is not given */
function parseClaim(word: string, namespace: string): ClaimRef {
  const [first = '', second, ...more] = word.split('/');
  if (first === '' || second === '' || more.length > 0)
    throw new UsageError(`"${word}" names no claim: write NAMESPACE/CLAIM`);
  if (second === undefined) return { namespace: namespace || 'default', name: first };
  if (namespace !== '')
    throw new UsageError(
      `${word} has its namespace: leave out -n ${namespace}, or write ${second}`,
    );
  return { namespace: first, name: second };
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

/** Adds until when a call may be at work in the driver, where Redis can be asked: the deletion of
 * the volume waits for that. */
async function withDoubt(
  explanation: Explanation,
  openRedis: () => Promise<Redis>,
  prefix: string,
): Promise<Explanation> {
  const { driver, uid } = explanation;
  if (driver === '') return explanation;
  try {
    const redis = await openRedis();
    const [leftMs] = await showDoubts({ redis, prefix }, queueName('claim', driver), [uid]);
    const isInDoubt = leftMs !== undefined && leftMs > 0;
    return isInDoubt
      ? { ...explanation, inDoubtUntilMs: systemClock.nowMs() + leftMs }
      : explanation;
  } catch {
    // What the API server says is enough.
    return explanation;
  }
}

async function explainByClass(
  kube: KubeClient,
  { redis, prefix }: { readonly redis: Redis; readonly prefix: string },
  { claim, nowMs }: { readonly claim: Claim; readonly nowMs: number },
): Promise<Explanation> {
  const className = classNameOf(claim);
  if (className === '' && claim.spec.storageClassName !== undefined) {
    const sentence = 'it asks for a PersistentVolume that exists (class "")';
    return explained(claim, causeNamed('NoProvisioning', sentence));
  }
  const cls = className === '' ? undefined : await kube.get<Class>(classes, { name: className });
  if (cls === undefined) return explained(claim, whyNoJob(NO_CLASS, className));
  const drivers = await listDrivers(redis, prefix);
  if (drivers.length === 0) {
    const sentence = `no ingest of this Redis and --redis-prefix=${prefix} knows its driver yet`;
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
  return explainOne({ redis, prefix, driver: driver.name }, entry, nowMs);
}

function explained(claim: Claim, cause: Cause, driver = ''): Explanation {
  const { uid, creationTimestamp } = claim.metadata;
  const sinceMs = creationTimestamp === undefined ? undefined : Date.parse(creationTimestamp);
  const className = classNameOf(claim);
  return { kind: 'claim', uid, object: keyOf(claim.metadata), className, driver, cause, sinceMs };
}
