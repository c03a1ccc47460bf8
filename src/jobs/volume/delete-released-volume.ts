import { isConflict, KubeError } from '../../kube/kube-error.ts';
import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { JobKey } from '../../queue/contract.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { type DeletionPlan, planDeletion, recordId } from '../../volumes/deletion.ts';
import { MAX_READ_AGE_MS, startAttempt } from '../attempt.ts';
import { waitForRecord } from '../common-outcomes.ts';
import { WORKER_STOPPING } from '../../queue/outcome.ts';
import { findDeletingGateway } from './deleting-gateway.ts';
import type { VolumeRun } from '../report-events.ts';
import type { ProcessorPorts } from '../ports.ts';
import { callDeleteVolume, deletionEnds, refuseDeletion } from './call-delete-volume.ts';
import { resolveCreation } from './resolve-creation.ts';
import { setVolumeFinalizer } from './volume-finalizer.ts';

/** A PV that is to be deleted, as a run has read it. */
interface ReleasedVolume extends VolumeRun {
  readonly job: JobKey;
  readonly readMs: number;
  /** The epoch of Redis' data before the read. */
  readonly dataEpoch: string;
}

/** Deletes the volume of a Released PV, then the PV, and counts the attempt in upstream's metrics.
 * @throws KubeError, RecordsUnavailable, OwnershipLost */
export async function deleteReleasedVolume(
  ports: ProcessorPorts,
  released: ReleasedVolume,
): Promise<Outcome> {
  const { volume, readMs } = released;
  try {
    const outcome = await attemptDeletion(ports, released);
    if (outcome.kind === 'done') ports.counts.countDeleted(volume, ports.clock.nowMs() - readMs);
    else if (outcome.kind !== 'later') ports.counts.countNotDeleted(volume);
    return outcome;
  } catch (error) {
    if (error instanceof KubeError) ports.counts.countNotDeleted(volume);
    throw error;
  }
}

async function attemptDeletion(ports: ProcessorPorts, released: ReleasedVolume): Promise<Outcome> {
  const { run, volume } = released;
  const { classOf, attachedTo } = ports;
  const plan = planDeletion(volume, { driver: ports.driver(), classOf, attachedTo });
  if (plan.kind === 'refuse') return refuseDeletion(ports, { volume, run }, plan);
  if (plan.secret.note !== undefined)
    ports.log.warn(
      { volume: volume.metadata.name, reason: plan.secret.note },
      'the volume is deleted without a secret',
    );
  const gateway = await findDeletingGateway(ports, released);
  if ('outcome' in gateway) return gateway.outcome;
  if (run.signal.aborted) return WORKER_STOPPING;
  return (
    (await deleteInDriver(ports, released, { ...plan, planned: gateway.address })) ??
    deletePersistentVolume(ports, volume)
  );
}

type PlannedDeletion = Extract<DeletionPlan, { kind: 'delete' }> & {
  /** Address of the gateway to call where no leader has named one. */
  readonly planned: string;
};

/** Opens the record and continues by its state.
 * @returns undefined if the driver has deleted the volume, now or in an earlier run */
async function deleteInDriver(
  ports: ProcessorPorts,
  { job, run, volume, readMs, dataEpoch }: ReleasedVolume,
  plan: PlannedDeletion,
): Promise<Outcome | undefined> {
  const id = recordId(volume, ports.options);
  const attempt = startAttempt(ports, { id, job, dataEpoch }, readMs);
  const opened = await ports.records.openDelete(id, {
    ...attempt,
    handle: plan.handle,
    endpoint: plan.planned,
  });
  switch (opened.kind) {
    case 'opened': {
      const { endpoint: gateway = plan.planned } = opened;
      const notAfterMs = Math.min(attempt.notAfterMs, readMs + MAX_READ_AGE_MS);
      const ends = deletionEnds(ports, attempt);
      return callDeleteVolume(ports, { ends, volume, run, plan, gateway, notAfterMs });
    }
    case 'gone':
      return undefined;
    case 'creating':
      return resolveCreation(ports, attempt, { volume, run });
    case 'settle': {
      const reason = 'an earlier CreateVolume of unknown end may still be at work in the driver';
      return { kind: 'later', reason, delayMs: opened.waitMs };
    }
    case 'busy':
    case 'not-yet':
      return waitForRecord(opened);
  }
}

/** Deletes the PV of a volume that the driver has deleted. Already gone counts as success. */
async function deletePersistentVolume(ports: ProcessorPorts, volume: Volume): Promise<Outcome> {
  const { name, uid } = volume.metadata;
  let left: Volume | undefined;
  try {
    left = await ports.kube.delete<Volume>(volumes, { name }, { preconditions: { uid } });
  } catch (error) {
    if (isConflict(error))
      return { kind: 'later', reason: `volume ${name} changed meanwhile`, delayMs: 0 };
    throw error;
  }
  // The answer is the PV if finalizers are left on it, else a Status.
  if (left?.metadata?.finalizers === undefined) return { kind: 'done', note: `deleted ${name}` };
  return setVolumeFinalizer(ports, left, false);
}
