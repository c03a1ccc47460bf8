import { isOutage, KubeError } from '../../kube/kube-error.ts';
import type { Snapshot } from '../../kube/objects.ts';
import { keyOf, snapshots } from '../../kube/resources.ts';
import type { JobKey } from '../../queue/contract.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { ProvisioningOptions } from '../../volumes/provisioning-options.ts';
import { isPending, restoredSnapshot } from '../../volumes/source-use.ts';
import { findClaim } from '../find-claim.ts';
import type { ProcessorPorts } from '../ports.ts';
import {
  hasSnapshotFinalizer,
  addSnapshotFinalizer,
  removeSnapshotFinalizer,
} from './snapshot-finalizer.ts';

type Ports = Pick<ProcessorPorts, 'kube' | 'openSources' | 'log'> & {
  readonly options: Pick<ProvisioningOptions, 'gates'>;
};

/** Somebody may withhold the right to write snapshots, take the snapshot away, or change it. */
const EXPECTED: ReadonlySet<number> = new Set([403, 404, 409]);

/** One run of a snapshot's job: takes our finalizer off where nobody restores from the snapshot any
 * more (spec 04 E). What it can't do now the next sweep finds again, so only an API server or a
 * Redis that is down makes it come back by itself. */
export async function reconcileSnapshot(ports: Ports, job: JobKey): Promise<Outcome> {
  try {
    return await releaseUnused(ports, job);
  } catch (error) {
    if (!(error instanceof KubeError) || isOutage(error)) throw error;
    const level = EXPECTED.has(error.code) ? 'debug' : 'warn';
    ports.log[level](
      { snapshot: keyOf(job), error: error.message },
      'a snapshot keeps our finalizer until the next sweep',
    );
    return { kind: 'done', note: `left to the next sweep: ${error.message}` };
  }
}

async function releaseUnused(ports: Ports, job: JobKey): Promise<Outcome> {
  const ref = { namespace: job.namespace, name: job.name };
  const snapshot = await ports.kube.get<Snapshot>(snapshots, ref);
  if (snapshot?.metadata.uid !== job.uid) return { kind: 'done', note: 'the snapshot is gone' };
  if (!hasSnapshotFinalizer(snapshot)) return { kind: 'done', note: 'our finalizer is off' };
  const use = await useOf(ports, job);
  if (use !== undefined) return { kind: 'done', note: use };
  const free = await removeSnapshotFinalizer(ports, snapshot);
  // A claim that came after our look may have found the finalizer still on.
  const lateUse = await useOf(ports, job);
  if (lateUse === undefined) return { kind: 'done', note: 'the snapshot is let go' };
  await addSnapshotFinalizer(ports, free);
  return { kind: 'done', note: lateUse };
}

/** What a snapshot is still read for; undefined = nothing. */
async function useOf(ports: Ports, { uid, namespace, name }: JobKey): Promise<string | undefined> {
  const key = keyOf({ namespace, name });
  // Claims before records: one that opens a record in between was still there when we listed.
  const where = ports.options.gates.CrossNamespaceVolumeDataSource ? undefined : namespace;
  const restore = await findClaim(
    ports,
    where,
    (claim) => isPending(claim) && restoredSnapshot(claim) === key,
  );
  if (restore !== undefined) return `claim ${restore.metadata.name} is restored from it`;
  return (await ports.openSources()).has(uid) ? 'a volume is being made from it' : undefined;
}
