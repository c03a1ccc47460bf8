import { SNAPSHOT_SOURCE_PROTECTION as finalizer } from '../../kube/keys.ts';
import { isOutage, KubeError } from '../../kube/kube-error.ts';
import type { Claim, Snapshot } from '../../kube/objects.ts';
import { keyOf, snapshots } from '../../kube/resources.ts';
import type { JobKey } from '../../queue/contract.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { ProvisioningOptions } from '../../volumes/flags.ts';
import { isPending, restoredSnapshot } from '../../volumes/data-source.ts';
import { hasFinalizer } from '../../volumes/finalizer-patches.ts';
import { addFinalizer, removeFinalizer } from '../finalizers.ts';
import type { ProcessorPorts } from '../ports.ts';
import { findClaim } from '../read-claims.ts';

type Ports = Pick<ProcessorPorts, 'kube' | 'openSources' | 'log'> & {
  readonly options: Pick<ProvisioningOptions, 'gates'>;
};

/** Refusals that need no warning: sutler may not write snapshots (403), or the snapshot is gone
 * (404) or changed (409). */
const EXPECTED: ReadonlySet<number> = new Set([403, 404, 409]);

/** One run of a snapshot's job: removes our finalizer if nothing is restored from the snapshot any
 * more (upstream's sweep with --snapshot-orphan-sweep-interval). What the API server refuses is
 * left to the next sweep (src/ingest/snapshot-sweep.ts).
 * @throws KubeError if the API server is down, RecordsUnavailable if Redis is */
export async function reconcileSnapshot(ports: Ports, job: JobKey): Promise<Outcome> {
  try {
    return { kind: 'done', note: await releaseUnused(ports, job) };
  } catch (error) {
    if (!(error instanceof KubeError) || isOutage(error)) throw error;
    const level = EXPECTED.has(error.code) ? 'debug' : 'warn';
    ports.log[level](
      { snapshot: keyOf(job), error: error.message },
      'the snapshot keeps our finalizer until the next sweep',
    );
    return { kind: 'done', note: `left to the next sweep: ${error.message}` };
  }
}

/** Removes our finalizer unless the snapshot is in use.
 * @returns what was done, or why nothing was */
async function releaseUnused(ports: Ports, job: JobKey): Promise<string> {
  const ref = { namespace: job.namespace, name: job.name };
  const snapshot = await ports.kube.get<Snapshot>(snapshots, ref);
  if (snapshot?.metadata.uid !== job.uid) return 'the snapshot is gone';
  if (!hasFinalizer(snapshot, finalizer)) return 'the snapshot does not have our finalizer';
  const use = await findUse(ports, job);
  if (use !== undefined) return use;
  const target = { resource: snapshots, object: snapshot, finalizer };
  const object = await removeFinalizer(ports, target);
  // A claim that came after findUse may have found the finalizer still there and rely on it.
  const lateUse = await findUse(ports, job);
  if (lateUse === undefined) return 'our finalizer is removed';
  await addFinalizer(ports, { ...target, object });
  return lateUse;
}

/** What still reads from a snapshot; undefined = nothing. */
async function findUse(ports: Ports, job: JobKey): Promise<string | undefined> {
  const { uid, namespace } = job;
  const key = keyOf(job);
  // Claims before records: if a record is opened in between, its claim was still in the list.
  const where = ports.options.gates.CrossNamespaceVolumeDataSource ? undefined : namespace;
  const isRestored = (claim: Claim) => isPending(claim) && restoredSnapshot(claim) === key;
  const restore = await findClaim(ports, where, isRestored);
  if (restore !== undefined) return `claim ${restore.metadata.name} is restored from it`;
  return (await ports.openSources()).has(uid) ? 'a volume is being created from it' : undefined;
}
