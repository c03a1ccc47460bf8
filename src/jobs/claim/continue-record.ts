import type { Claim, Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { DUPLICATE_LEFT } from '../../records/forget.ts';
import type { OpenedCreate, Replay } from '../../records/open-results.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import { volumeName } from '../../volumes/persistent-volume.ts';
import { whyUnfit } from '../../volumes/record-fit.ts';
import type { ClaimAttempt } from '../attempt.ts';
import type { Dependencies } from '../dependencies.ts';
import { RECORD_CHANGED, reportProvisioningFailed, waitForRecord } from '../outcomes.ts';
import { releaseRestoredSnapshot } from '../release-sources.ts';
import { sendPlanned, sendStored } from './create-volume.ts';
import { endWithoutCreation, type Intent } from './decide-intent.ts';
import { logSuccess, reportSuccess } from './store-volume.ts';

/** Continues with a record that earlier runs left, by its state. */
export function continueRecord(
  deps: Dependencies,
  claimAttempt: ClaimAttempt,
  intent: Intent,
  opened: OpenedCreate,
): Outcome | Promise<Outcome> {
  switch (opened.kind) {
    case 'replay':
      return replayCreation(deps, claimAttempt, opened);
    case 'unusable':
      return refuseRecord(deps, claimAttempt.claim, opened.reason);
    case 'closed':
      return handleClosedRecord(deps, claimAttempt, intent, opened);
    case 'busy':
    case 'not-yet':
      return waitForRecord(opened);
    // The caller has handled these.
    case 'opened':
    case 'none':
      return RECORD_CHANGED;
  }
}

/** Finishes a creation that an earlier run left open. If the PV of this claim exists, the record
 * closes without a call as soon as no earlier call is at work any more (invariant 4, record rule
 * 5); otherwise the stored request is sent again (invariant 3). It is sent again, too, where the
 * claim is gone or the PV Released: the PV is about to be deleted; and where another provisioner
 * may have led meanwhile: it deletes volumes without regard to our records, so the PV may name one
 * that is gone, beside one that our earlier call has made (record rule 9). */
async function replayCreation(
  deps: Dependencies,
  claimAttempt: ClaimAttempt,
  replay: Replay,
): Promise<Outcome> {
  const { attempt, claim } = claimAttempt;
  const { records } = deps.redis;
  // With the answer, a PV of this name is compared with it. A duplicate volume that may still exist
  // is found again only by the driver's next answer.
  if (replay.answer !== undefined || replay.lastCode === DUPLICATE_LEFT)
    return sendStored(deps, claimAttempt, replay);
  // Nothing is sent, so the record must not say that this attempt may have created a volume.
  const revert = () => records.revert(attempt.id, attempt.owner);
  // The name as stored: the flags that form names may have changed since the volume was planned.
  const { pvTemplate } = replay.stored;
  const { name } = pvTemplate.volume.metadata;
  const reading = deps.cluster.kube.get<Volume>(volumes, { name });
  const volume = await reading.catch(async (error: unknown) => {
    await revert();
    throw error;
  });
  if (volume?.spec.claimRef?.uid !== attempt.id) return sendStored(deps, claimAttempt, replay);
  if (volume.metadata.deletionTimestamp !== undefined) {
    await revert();
    return { kind: 'later', reason: `volume ${name} is being deleted` };
  }
  if (claim === undefined || volume.status?.phase === 'Released')
    return sendStored(deps, claimAttempt, replay);
  if (replay.settlesInMs > 0) {
    await revert();
    const reason = `volume ${name} exists; an earlier call for it may still be at work`;
    return { kind: 'later', reason, delayMs: replay.settlesInMs };
  }
  if (replay.isOfEarlierTerm) return sendStored(deps, claimAttempt, replay);
  await records.closeStored(attempt.id, attempt.owner);
  logSuccess(deps, claimAttempt, volume);
  await reportSuccess(deps, claim, pvTemplate);
  return { kind: 'done', note: `volume ${name} exists already` };
}

/** Handles a claim whose record is closed: its PV was stored once, and may be deleted by now. While
 * the PV exists there is nothing to do. If the PV of a claim that was never bound was removed by
 * hand, the volume is created again; the driver finds an existing one by its name. */
async function handleClosedRecord(
  deps: Dependencies,
  claimAttempt: ClaimAttempt,
  intent: Intent,
  { state, waitMs }: Extract<OpenedCreate, { kind: 'closed' }>,
): Promise<Outcome> {
  const { kube, events } = deps.cluster;
  const { attempt, claim } = claimAttempt;
  const isPending = ['create', 'refuse', 'reschedule', 'wait'].includes(intent.kind);
  if (isPending && state === 'stored' && (await hasVolume(deps, attempt.id))) {
    // Planning has added our finalizer to the snapshot again.
    if (intent.kind === 'create')
      await releaseRestoredSnapshot(kube, deps.reports.log, intent.planned.pvTemplate.source);
    return { kind: 'done', note: 'its volume exists' };
  }
  if (intent.kind !== 'create') return endWithoutCreation(deps, claim, intent);
  if (state === 'stored') return createAgain(deps, claimAttempt, intent.planned);
  if (state === 'deleting') {
    const reason = 'the volume of this claim is being deleted; none is created meanwhile';
    return { kind: 'later', reason };
  }
  const end = new Date(Math.ceil((deps.clock.nowMs() + waitMs) / 1_000) * 1_000).toISOString();
  const reason =
    `the volume of this claim UID was deleted: none is created for it before ${end}, ` +
    'when no earlier call can arrive any more';
  reportProvisioningFailed(events, claim, reason);
  return { kind: 'later', reason, delayMs: waitMs };
}

/** Whether the PV of a claim exists. */
export async function hasVolume(
  { cluster, settings: { options } }: Dependencies,
  claimUid: string,
): Promise<boolean> {
  if (options.volumeNamePrefix === '') return false;
  const volume = await cluster.kube.get<Volume>(volumes, { name: volumeName(claimUid, options) });
  // With --volume-name-uuid-length, the PV of this name may belong to another claim.
  return volume !== undefined && (volume.spec.claimRef?.uid ?? claimUid) === claimUid;
}

async function createAgain(
  deps: Dependencies,
  claimAttempt: ClaimAttempt,
  planned: VolumeRequest,
): Promise<Outcome> {
  const { attempt } = claimAttempt;
  const opening = { ...attempt, planned, mode: 'again' as const };
  const opened = await deps.redis.records.openCreate(attempt.id, opening);
  switch (opened.kind) {
    case 'opened':
      return sendPlanned(deps, claimAttempt, planned, opened);
    case 'replay':
      return sendStored(deps, claimAttempt, opened);
    case 'not-yet':
      return waitForRecord(opened);
    case 'unusable':
      return refuseRecord(deps, claimAttempt.claim, opened.reason);
    case 'busy':
    case 'none':
    case 'closed':
      return RECORD_CHANGED;
  }
}

/** Ends the run of a claim whose record is not used. It is looked at again after the longest delay.
 */
function refuseRecord(
  { cluster }: Dependencies,
  claim: Claim | undefined,
  reason: string,
): Outcome {
  reportProvisioningFailed(cluster.events, claim, reason);
  return { kind: 'parked', reason };
}

/** The check whether a stored request is one for this claim. */
export function fitsClaim(
  deps: Dependencies,
  { attempt: { job }, claim }: ClaimAttempt,
): (stored: VolumeRequest) => string | undefined {
  const { uid, namespace, name } = job;
  const annotations = claim?.metadata.annotations;
  return (stored) =>
    whyUnfit(stored, {
      ...ownerOf(deps),
      claim: { uid, namespace, name, annotations },
      className: claim && classNameOf(claim),
    });
}

/** The check whether a stored request is one for the claim of this PV.
 * @param id  of the record */
export function fitsVolume(
  deps: Dependencies,
  id: string,
  volume: Volume,
): (stored: VolumeRequest) => string | undefined {
  const { claimRef, storageClassName: className } = volume.spec;
  const { namespace = '', name = '' } = claimRef ?? {};
  const claim = { uid: id, namespace, name };
  return (stored) => whyUnfit(stored, { ...ownerOf(deps), claim, className, volume });
}

function ownerOf({ cluster, driver, settings }: Dependencies) {
  return { driver: driver.facts(), options: settings.options, classOf: cluster.classOf };
}
