import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Run } from '../../queue/run.ts';
import type { JobKey } from '../../queue/contract.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { shouldDelete, recordId, vanishedRecordIds } from '../../volumes/deletion.ts';
import { waitForRecord } from '../common-outcomes.ts';
import type { ProcessorPorts } from '../ports.ts';
import { deleteReleasedVolume } from './delete-released-volume.ts';
import { setVolumeFinalizer } from './volume-finalizer.ts';

/** One run of a volume's job: reads the PV, adds or removes its finalizer, and deletes volume and
 * PV if the PV is Released with the policy Delete. A deletion that an earlier run left open ends
 * when the PV is to be kept or has vanished. */
export async function reconcileVolume(
  ports: ProcessorPorts,
  job: JobKey,
  run: Pick<Run, 'signal' | 'reachedDriver' | 'lastReason'>,
): Promise<Outcome> {
  const readMs = ports.clock.nowMs();
  const { dataEpoch } = ports.records;
  const ids = vanishedRecordIds(job, ports.options);
  const halt = ids && (await ports.records.haltUnlessOpen(ids));
  if (halt !== undefined) return waitForRecord(halt);
  const volume = await ports.kube.get<Volume>(volumes, { name: job.name });
  if (volume?.metadata.uid !== job.uid) return handleVanishedVolume(ports, job, volume);
  const verdict = shouldDelete(volume, ports.driver());
  switch (verdict.kind) {
    case 'ignore':
      if ((await endDeletion(ports, volume)) === 'busy') return DELETION_UNDER_WAY;
      return { kind: 'done', note: verdict.reason };
    case 'add-finalizer':
      return setVolumeFinalizer(ports, volume, true);
    case 'remove-finalizer':
      if ((await endDeletion(ports, volume)) === 'busy') return DELETION_UNDER_WAY;
      return setVolumeFinalizer(ports, volume, false);
    case 'delete':
      return deleteReleasedVolume(ports, { job, run, volume, readMs, dataEpoch });
  }
}

/** Another run owns the record. When its ownership has ended, a later run of this job ends the
 * deletion. */
const DELETION_UNDER_WAY: Outcome = { kind: 'running', reason: 'a deletion is under way' };

/** Ends a deletion that was begun before policy, claimRef or finalizers were edited: the volume is
 * kept. */
function endDeletion(ports: ProcessorPorts, volume: Volume): Promise<'ok' | 'none' | 'busy'> {
  return ports.records.endDeletion(recordId(volume, ports.options), ports.newOwner(), 'stored');
}

/** Ends what is open of a deletion whose PV has vanished, for example because our finalizer was
 * removed by hand. If another PV has the name now, its record is left alone. */
async function handleVanishedVolume(
  ports: ProcessorPorts,
  job: JobKey,
  namesake: Volume | undefined,
): Promise<Outcome> {
  const ids = vanishedRecordIds(job, ports.options) ?? (await ports.records.openIdsOf(job));
  const namesakeId = namesake === undefined ? undefined : recordId(namesake, ports.options);
  let isBusy = false;
  for (const id of ids)
    if (id !== namesakeId)
      isBusy = (await ports.records.endDeletion(id, ports.newOwner(), 'gone')) === 'busy' || isBusy;
  if (isBusy) return DELETION_UNDER_WAY;
  return {
    kind: 'done',
    note: namesake === undefined ? 'the volume is gone' : 'another volume has the name now',
  };
}
