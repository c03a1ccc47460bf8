import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import { volumeName } from '../../volumes/persistent-volume.ts';
import type { ClaimAttempt } from '../attempt.ts';
import type { OpenedCreate } from '../../records/open-results.ts';
import { reportProvisioningFailed } from '../report-events.ts';
import { RECORD_CHANGED, waitForRecord } from '../common-outcomes.ts';
import type { ProcessorPorts } from '../ports.ts';
import { releaseRestoredSnapshot } from '../snapshot/release-restored.ts';
import { sendPlanned, sendStored } from './call-create-volume.ts';
import type { Intent } from './intent.ts';
import { refuseRecord } from './unusable-record.ts';
import { endWithoutCreation } from './end-without-creation.ts';

/** Handles a claim whose record is closed: its PV was stored once, and may be deleted by now. While
 * the PV exists there is nothing to do. If the PV of a claim that was never bound was removed by
 * hand, the volume is created again; the driver finds an existing one by its name. */
export async function handleClosedRecord(
  ports: ProcessorPorts,
  claimAttempt: ClaimAttempt,
  intent: Intent,
  { state, waitMs }: Extract<OpenedCreate, { kind: 'closed' }>,
): Promise<Outcome> {
  const isPending = ['create', 'refuse', 'reschedule', 'wait'].includes(intent.kind);
  if (isPending && state === 'stored' && (await hasVolume(ports, claimAttempt.attempt.id))) {
    // Planning has added our finalizer to the snapshot again.
    if (intent.kind === 'create')
      await releaseRestoredSnapshot(ports, intent.planned.pvTemplate.source);
    return { kind: 'done', note: 'its volume exists' };
  }
  if (intent.kind !== 'create') return endWithoutCreation(ports, claimAttempt, intent);
  if (state === 'stored') return createAgain(ports, claimAttempt, intent.planned);
  if (state === 'deleting') {
    const reason = 'the volume of this claim is being deleted; none is created meanwhile';
    return { kind: 'later', reason };
  }
  const end = new Date(Math.ceil((ports.clock.nowMs() + waitMs) / 1_000) * 1_000).toISOString();
  const reason =
    `the volume of this claim UID was deleted: none is created for it before ${end}, ` +
    'when no earlier call can arrive any more';
  reportProvisioningFailed(ports, claimAttempt, reason);
  return { kind: 'later', reason, delayMs: waitMs };
}

async function createAgain(
  ports: ProcessorPorts,
  claimAttempt: ClaimAttempt,
  planned: VolumeRequest,
): Promise<Outcome> {
  const { attempt } = claimAttempt;
  const opened = await ports.records.openCreate(attempt.id, { ...attempt, planned, mode: 'again' });
  switch (opened.kind) {
    case 'opened':
      return sendPlanned(ports, claimAttempt, planned, opened);
    case 'replay':
      return sendStored(ports, claimAttempt, opened);
    case 'not-yet':
      return waitForRecord(opened);
    case 'unusable':
      return refuseRecord(ports, claimAttempt.claim, opened);
    case 'busy':
    case 'none':
    case 'closed':
      return RECORD_CHANGED;
  }
}

async function hasVolume({ kube, options }: ProcessorPorts, claimUid: string): Promise<boolean> {
  if (options.volumeNamePrefix === '') return false;
  const volume = await kube.get<Volume>(volumes, { name: volumeName(claimUid, options) });
  // With --volume-name-uuid-length, the PV of this name may belong to another claim.
  return volume !== undefined && (volume.spec.claimRef?.uid ?? claimUid) === claimUid;
}
