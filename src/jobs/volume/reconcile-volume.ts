import { isConflict, KubeError } from '../../kube/kube-error.ts';
import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Run } from '../../queue/consumer.ts';
import type { JobKey } from '../../queue/contract.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { judgeVolume, recordId, vanishedRecordIds } from '../../volumes/deletion.ts';
import { planDeletion } from '../../volumes/plan-deletion.ts';
import { openingOf, withGateway, startAttempt } from '../attempt.ts';
import { callDeleteVolume, refuseDeletion } from './call-delete-volume.ts';
import { addVolumeFinalizer, removeVolumeFinalizer } from './volume-finalizer.ts';
import type { ProcessorPorts } from '../ports.ts';
import { resolveCreation } from './resolve-creation.ts';

/** How old the look at the PV may be when DeleteVolume is sent (invariant 7). */
const FRESH_MS = 2_000;

/** What of its run a deletion knows. */
type VolumeJobRun = Pick<Run, 'signal' | 'lastReason'>;

/** One run of a volume's job: reads the PV afresh, keeps its finalizer right, and where it is to be
 * deleted, deletes volume and PV. */
export async function reconcileVolume(
  ports: ProcessorPorts,
  job: JobKey,
  run: VolumeJobRun,
): Promise<Outcome> {
  const readMs = ports.clock.nowMs();
  const { incarnation } = ports.records;
  const volume = await ports.kube.get<Volume>(volumes, { name: job.name });
  if (volume?.metadata.uid !== job.uid) return handleVanishedVolume(ports, job, volume);
  const verdict = judgeVolume(volume, ports.driver());
  switch (verdict.kind) {
    case 'ignore':
      // A deletion that was begun before somebody changed policy, claimRef or finalizers is over
      // too.
      await endDeletionKeepingVolume(ports, volume);
      return { kind: 'done', note: verdict.reason };
    case 'add-finalizer':
      return addVolumeFinalizer(ports, volume);
    case 'remove-finalizer':
      // A deletion that was begun before the policy changed is over; one that is under way is
      // waited for.
      if ((await endDeletionKeepingVolume(ports, volume)) === 'busy')
        return { kind: 'running', reason: 'a deletion is under way' };
      return removeVolumeFinalizer(ports, volume);
    case 'delete':
      return withDeletionCount(ports, { volume, startMs: readMs }, () =>
        deleteReleased(ports, { job, run, volume, readMs, incarnation }),
      );
  }
}

/** Counts an attempt at a deletion as upstream does; what did not get as far as trying is none. */
async function withDeletionCount(
  ports: ProcessorPorts,
  { volume, startMs }: { readonly volume: Volume; readonly startMs: number },
  attempt: () => Promise<Outcome>,
): Promise<Outcome> {
  try {
    const outcome = await attempt();
    if (outcome.kind === 'done') ports.counts.deleted(volume, ports.clock.nowMs() - startMs);
    else if (outcome.kind !== 'later') ports.counts.notDeleted(volume);
    return outcome;
  } catch (error) {
    if (error instanceof KubeError) ports.counts.notDeleted(volume);
    throw error;
  }
}

/** A look at a volume that is to be deleted. */
interface DeletionRead {
  readonly job: JobKey;
  readonly run: VolumeJobRun;
  readonly volume: Volume;
  readonly readMs: number;
  /** The incarnation of Redis before the look. */
  readonly incarnation: string;
}

async function deleteReleased(
  ports: ProcessorPorts,
  { job, run, volume, readMs, incarnation }: DeletionRead,
): Promise<Outcome> {
  const plan = planDeletion(volume, {
    driver: ports.driver(),
    classOf: ports.classOf,
    attachedTo: ports.attachedTo,
  });
  if (plan.kind === 'refuse') return refuseDeletion(ports, { volume, run }, plan);
  if (plan.secret.note !== undefined)
    ports.log.warn(
      { volume: volume.metadata.name, reason: plan.secret.note },
      'the volume is deleted without a secret',
    );
  if (run.signal.aborted) return { kind: 'later', reason: 'this worker is stopping', delayMs: 0 };

  const attempt = startAttempt(
    { nowMs: ports.clock.nowMs(), writeAllowanceMs: ports.writeAllowanceMs },
    { id: recordId(volume, ports.options), owner: ports.newOwner(), job, incarnation },
  );
  const opened = await ports.records.openDelete(attempt.id, openingOf(attempt));
  switch (opened.kind) {
    case 'opened': {
      const notAfterMs = Math.min(attempt.notAfterMs, readMs + FRESH_MS);
      const ended = await callDeleteVolume(ports, {
        volume,
        run,
        plan,
        attempt: { ...withGateway(attempt, opened.endpoint), notAfterMs },
      });
      return ended ?? deletePersistentVolume(ports, volume);
    }
    case 'gone':
      return deletePersistentVolume(ports, volume);
    case 'resolve':
    case 'creating':
      return resolveCreation(ports, { attempt, volume, run, isOpen: opened.kind === 'creating' });
    case 'not-yet':
      return { kind: 'later', reason: opened.reason, delayMs: opened.waitMs };
    case 'busy':
      return { kind: 'running', reason: `another run is at this volume (${opened.state})` };
    case 'settle':
      return {
        kind: 'later',
        reason: 'a call of unknown end may still be at work in the driver',
        delayMs: opened.waitMs,
      };
  }
}

/** Removes the PV of a volume that the driver has deleted. Whoever removed it before us is welcome.
 */
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
  // A PV that finalizers keep comes back with them.
  if (left?.metadata?.finalizers === undefined) return { kind: 'done', note: `deleted ${name}` };
  return removeVolumeFinalizer(ports, left);
}

/** The PV is kept: what was open of a deletion is over. */
function endDeletionKeepingVolume(
  ports: ProcessorPorts,
  volume: Volume,
): Promise<'ok' | 'none' | 'busy'> {
  return ports.records.endDeletion(recordId(volume, ports.options), ports.newOwner(), 'stored');
}

/** The PV is gone, perhaps because somebody took our finalizer off: what was open of a deletion is
 * over. A namesake's record is the namesake's. */
async function handleVanishedVolume(
  ports: ProcessorPorts,
  job: JobKey,
  namesake: Volume | undefined,
): Promise<Outcome> {
  const ids = vanishedRecordIds(job, ports.options) ?? (await ports.records.openIdsOf(job));
  const other = namesake === undefined ? undefined : recordId(namesake, ports.options);
  for (const id of ids)
    if (id !== other) await ports.records.endDeletion(id, ports.newOwner(), 'gone');
  return {
    kind: 'done',
    note: namesake === undefined ? 'the volume is gone' : 'another volume has the name now',
  };
}
