import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import { volumeName } from '../../volumes/names.ts';
import { type ClaimAttempt } from '../attempt.ts';
import { waitForRecord } from '../common-outcomes.ts';
import type { ProcessorPorts } from '../ports.ts';
import { releaseRestoredSnapshot } from '../snapshot/release-restored.ts';
import { callCreateVolume } from './call-create-volume.ts';
import type { Intent } from './decide-intent.ts';
import { endWithoutCreation } from './end-without-creation.ts';

/** Handles a claim whose record is closed: its volume was stored once, and may be deleted by now.
 * While the PV is there, nothing is to do. If somebody removed the PV of a claim that was never
 * bound, the volume is created again, which finds an existing one by its name. */
export async function handleClosedRecord(
  ports: ProcessorPorts,
  closed: ClaimAttempt & {
    readonly intent: Intent;
    readonly state: 'stored' | 'deleting' | 'gone';
  },
): Promise<Outcome> {
  const { attempt, claim, run, intent, state } = closed;
  const isPending = intent.kind === 'create' || intent.kind === 'refuse';
  if (isPending && state === 'stored' && (await hasVolume(ports, attempt.id))) {
    // The plan of this run has put our finalizer on the snapshot again.
    if (intent.kind === 'create') await releaseSnapshotOf(ports, intent.planned);
    return { kind: 'done', note: 'its volume exists' };
  }
  if (intent.kind !== 'create') return endWithoutCreation(ports, { claim, run }, intent);
  if (state !== 'stored') {
    const reason = `the volume of this claim is ${state}; none is created again for the same UID`;
    return { kind: 'later', reason };
  }
  return createAgain(ports, { attempt, claim, run }, intent.planned);
}

async function createAgain(
  ports: ProcessorPorts,
  { attempt, claim, run }: ClaimAttempt,
  planned: VolumeRequest,
): Promise<Outcome> {
  const opened = await ports.records.openCreate(attempt.id, {
    ...attempt,
    planned,
    mode: 'again',
  });
  switch (opened.kind) {
    case 'replay':
      return callCreateVolume(ports, {
        attempt: { ...attempt, gateway: opened.stored.endpoint },
        claim,
        run,
        stored: opened.stored,
        replayed: opened,
      });
    case 'opened':
      return callCreateVolume(ports, {
        attempt: { ...attempt, gateway: opened.endpoint ?? '' },
        claim,
        run,
        stored: planned,
      });
    case 'not-yet':
      return waitForRecord(opened);
    case 'busy':
    case 'none':
    case 'closed':
      return { kind: 'later', reason: 'the volume record changed meanwhile' };
  }
}

async function hasVolume({ kube, options }: ProcessorPorts, claimUid: string): Promise<boolean> {
  if (options.volumeNamePrefix === '') return false;
  const volume = await kube.get<Volume>(volumes, { name: volumeName(claimUid, options) });
  // A shortened name may be another claim's.
  return volume !== undefined && (volume.spec.claimRef?.uid ?? claimUid) === claimUid;
}

async function releaseSnapshotOf(ports: ProcessorPorts, planned: VolumeRequest): Promise<void> {
  const { source } = planned.skeleton;
  if (source?.isReleased === true) await releaseRestoredSnapshot(ports, source);
}
