import type { Redis } from 'ioredis';
import { type Cause, fine, wrong } from '../explain/causes.ts';
import {
  absentClass,
  explainEntry,
  type Explanation,
  readKeyFacts,
  renderExplanation,
} from '../explain/explain.ts';
import { NOT_ANNOTATED } from '../explain/pending-index.ts';
import type { KubeClient } from '../kube/client.ts';
import type { Claim, Class, Volume } from '../kube/objects.ts';
import { claims, classes, volumes } from '../kube/resources.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import { listDrivers } from '../queue/queues.ts';
import { systemClock } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import type { Invocation } from '../runtime/process.ts';
import { traceId } from '../runtime/trace-id.ts';
import { classNameOf, shouldProvision, waitsForPod } from '../volumes/eligibility.ts';
import { isKnownAs } from '../volumes/driver-facts.ts';
import { type Means, Refusal, type Result, runCommand } from './command.ts';
import { explain } from './flags.ts';
import { repeat } from './repeat.ts';

/** Says why a claim is pending. */
export function main(invocation: Invocation): Promise<void> {
  return runCommand(invocation, { name: 'explain', ...explain }, run);
}

async function run(means: Means<typeof explain.flags>): Promise<Result> {
  const { context, openRedis, openKube } = means;
  const { flags, words } = context;
  const ref = parseClaim(words[0] ?? '', flags.namespace);
  const kube = await openKube(flags);
  let redis: Redis | undefined;
  return repeat(means, flags.watch, async () => {
    const nowMs = systemClock.nowMs();
    const claim = await kube.get<Claim>(claims, ref);
    if (claim === undefined)
      throw new Refusal(`there is no claim ${ref.namespace}/${ref.name}: kubectl get pvc -A`);
    const explanation =
      (await explainWithoutRedis(kube, claim)) ??
      (await explainByRedis(kube, (redis ??= await openRedis()), {
        claim,
        prefix: flags.redisPrefix,
        nowMs,
      }));
    const lines = renderExplanation(explanation, nowMs);
    return { status: 0, lines, json: { ...explanation, trace: traceId(explanation.uid) } };
  });
}

function parseClaim(word: string, namespace: string): { namespace: string; name: string } {
  const [first = '', second, ...more] = word.split('/');
  if (first === '' || second === '' || more.length > 0)
    throw new UsageError('name one claim: sutler explain NAMESPACE/CLAIM');
  return second === undefined ? { namespace, name: first } : { namespace: first, name: second };
}

/** A claim that is Bound, or nobody's work. */
async function explainWithoutRedis(
  kube: KubeClient,
  claim: Claim,
): Promise<Explanation | undefined> {
  const name = claim.spec.volumeName ?? '';
  if (name === '') return undefined;
  const volume = await kube.get<Volume>(volumes, { name });
  const isBound = claim.status?.phase === 'Bound';
  if (volume === undefined)
    return simple(
      claim,
      wrong('Lost', `its PersistentVolume ${name} does not exist`, [
        'administrator',
        'restore the PersistentVolume, or delete the claim',
      ]),
    );
  const created = volume.metadata.creationTimestamp ?? '';
  const sentence = `${isBound ? 'Bound to' : 'names'} PersistentVolume ${name}, created ${created}`;
  return simple(
    claim,
    fine(isBound ? 'Bound' : 'Binding', sentence, [
      'nobody',
      isBound ? 'nothing is to be done' : 'kube-controller-manager binds the two',
    ]),
    volume.spec.csi?.driver,
  );
}

async function explainByRedis(
  kube: KubeClient,
  redis: Redis,
  o: { readonly claim: Claim; readonly prefix: string; readonly nowMs: number },
): Promise<Explanation> {
  const { claim, prefix, nowMs } = o;
  const className = classNameOf(claim);
  const cls = className === '' ? undefined : await kube.get<Class>(classes, { name: className });
  if (cls === undefined)
    return simple(
      claim,
      className === '' && claim.spec.storageClassName !== undefined
        ? fine('NoProvisioning', 'it asks for a PersistentVolume that exists (class "")', [
            'administrator',
            'create a PersistentVolume that fits it',
          ])
        : absentClass(className),
    );
  const drivers = await listDrivers(redis, prefix);
  const known = drivers.map((name) => ({ name, inTreeName: inTreeNameOf(name) }));
  const driver = known.find((each) => isKnownAs(each, cls.provisioner));
  if (driver === undefined)
    return simple(
      claim,
      wrong(
        'OtherDriver',
        `class ${className} belongs to ${cls.provisioner}, which no sutler of this Redis serves ` +
          `(it serves ${drivers.join(', ') || 'none'})`,
        ['administrator', 'look at the provisioner of that driver'],
      ),
      cls.provisioner,
    );
  const verdict = shouldProvision(claim, driver, () => cls);
  if (verdict.kind === 'ignore' && waitsForPod(claim, cls))
    return simple(
      claim,
      fine('WaitForFirstConsumer', 'it waits for the first pod that uses it', [
        'user',
        'create a pod with this claim; the scheduler then selects a node',
      ]),
      driver.name,
    );
  const { uid, namespace = '', name, creationTimestamp = '' } = claim.metadata;
  const key = { kind: 'claim', uid, namespace, name } as const;
  const why = verdict.kind === 'ignore' ? NOT_ANNOTATED : '';
  const facts = await readKeyFacts(redis, prefix, driver.name, key);
  const sinceMs = Date.parse(creationTimestamp);
  return explainEntry({ key, className, sinceMs, why }, facts, nowMs);
}

function simple(claim: Claim, cause: Cause, driver = ''): Explanation {
  const { uid, namespace = '', name, creationTimestamp } = claim.metadata;
  return {
    uid,
    object: `${namespace}/${name}`,
    className: classNameOf(claim),
    driver,
    cause,
    sinceMs: creationTimestamp === undefined ? undefined : Date.parse(creationTimestamp),
  };
}
