import type { Claim } from '../../kube/objects.ts';
import type { Run } from '../../queue/run.ts';
import type { JobKey } from '../../queue/contract.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { OpenedCreate } from '../../records/open-results.ts';
import { type ClaimAttempt, startAttempt } from '../attempt.ts';
import { RECORD_CHANGED, waitForRecord } from '../common-outcomes.ts';
import { WORKER_STOPPING } from '../../queue/outcome.ts';
import type { ProcessorPorts } from '../ports.ts';
import { readClaim } from '../read-claims.ts';
import { sendPlanned } from './call-create-volume.ts';
import { addClaimFinalizer, removeClaimFinalizer } from './claim-finalizer.ts';
import { decideIntent } from './decide-intent.ts';
import type { Intent } from './intent.ts';
import { endWithoutCreation } from './end-without-creation.ts';
import { handleClosedRecord } from './handle-closed-record.ts';
import { delayIfRecentlyInfeasible } from './hold-off.ts';
import { freeName, keepName } from './name-clash.ts';
import { releaseCloneSource } from './release-clone-source.ts';
import { replayCreation } from './replay-creation.ts';
import { fitsClaim, refuseRecord } from './unusable-record.ts';

/** One run of a claim's job: reads the claim, plans its volume, opens the volume record, has the
 * driver create the volume, writes the PV and closes the record. A creation that an earlier run
 * left open is finished, whatever became of the claim (invariant 3).
 * @throws KubeError, RecordsUnavailable, OwnershipLost */
export async function reconcileClaim(
  ports: ProcessorPorts,
  job: JobKey,
  run: Run,
): Promise<Outcome> {
  const startMs = ports.clock.nowMs();
  // Taken before the claim is read (record rule 6).
  const { dataEpoch } = ports.records;
  const notYet = await ports.records.whyNotYet(job.uid);
  if (notYet !== undefined) return waitForRecord(notYet);
  let claim = await readClaim(ports, job);
  const delayed = await delayIfRecentlyInfeasible(ports, claim, run);
  if (delayed !== undefined) {
    // The deletion of a claim does not wait for its hold-off.
    if (claim?.metadata.deletionTimestamp !== undefined) await removeClaimFinalizer(ports, claim);
    return delayed;
  }
  const intent = await decideIntent(ports, claim);
  if (intent.kind === 'create') claim = intent.claim ?? claim;
  if (run.signal.aborted) return WORKER_STOPPING;
  if (claim !== undefined && intent.kind === 'create' && ports.usesClaimFinalizer) {
    claim = await addClaimFinalizer(ports, claim);
    if (claim === undefined)
      return { kind: 'later', reason: 'the claim is being deleted, or was replaced' };
  }
  const attempt = startAttempt(ports, { id: job.uid, job, dataEpoch }, startMs);
  const outcome = await createOrFinish(ports, { attempt, claim, run }, intent);
  countAttempt(ports, { claim, intent, outcome, startMs });
  return releaseUnneeded(ports, job.uid, claim, outcome);
}

/** Opens the record. If earlier runs left nothing to finish, sends the request that this run has
 * planned, or ends the run of a claim that gets no volume. */
async function createOrFinish(
  ports: ProcessorPorts,
  claimAttempt: ClaimAttempt,
  intent: Intent,
): Promise<Outcome> {
  const whyUnfit = fitsClaim(ports, claimAttempt.attempt.job, claimAttempt.claim);
  const attempt = { ...claimAttempt.attempt, whyUnfit };
  if (intent.kind !== 'create') {
    const opened = await ports.records.openExisting(attempt.id, attempt);
    return opened.kind === 'none'
      ? endWithoutCreation(ports, claimAttempt, intent)
      : continueRecord(ports, claimAttempt, intent, opened);
  }
  const { planned } = intent;
  const opened = await ports.records.openCreate(attempt.id, { ...attempt, planned, mode: 'plan' });
  return opened.kind === 'opened'
    ? sendPlanned(ports, claimAttempt, planned, opened)
    : continueRecord(ports, claimAttempt, intent, opened);
}

/** Continues with a record that earlier runs left, by its state. */
function continueRecord(
  ports: ProcessorPorts,
  claimAttempt: ClaimAttempt,
  intent: Intent,
  opened: OpenedCreate,
): Outcome | Promise<Outcome> {
  switch (opened.kind) {
    case 'replay':
      return replayCreation(ports, claimAttempt, opened);
    case 'unusable':
      return refuseRecord(ports, claimAttempt.claim, opened);
    case 'closed':
      return handleClosedRecord(ports, claimAttempt, intent, opened);
    case 'busy':
    case 'not-yet':
      return waitForRecord(opened);
    // Handled by createOrFinish.
    case 'opened':
    case 'none':
      return RECORD_CHANGED;
  }
}

/** Counts the run in upstream's metrics. Runs that never reached the driver and will be repeated
 * are not counted. */
function countAttempt(
  { clock, counts }: ProcessorPorts,
  ended: { claim: Claim | undefined; intent: Intent; outcome: Outcome; startMs: number },
): void {
  const { claim, intent, outcome, startMs } = ended;
  if (intent.kind === 'none' || outcome.kind === 'later') return;
  const isDone = outcome.kind === 'done' && outcome.needsNode !== true;
  if (isDone && intent.kind !== 'populator')
    counts.countProvisioned(claim, clock.nowMs() - startMs);
  else counts.countNotProvisioned(claim);
}

/** Releases what is no longer needed after this run: the volume's name, the room that is reserved
 * for it, the claim's finalizer, and a claim that clones were created from.
 * @returns the outcome of the run */
async function releaseUnneeded(
  ports: ProcessorPorts,
  uid: string,
  claim: Claim | undefined,
  outcome: Outcome,
): Promise<Outcome> {
  const isAbsent = outcome.kind === 'retry' && outcome.isAbsent === true;
  if (outcome.kind === 'done' || isAbsent) await releaseNameAndRoom(ports, uid);
  else if (claim === undefined) await keepName(ports, uid);
  if (claim === undefined) return outcome;
  // The finalizer stays while the volume is not done, except on a claim that is being deleted and
  // has no open record. After `later` and `running` it stays there too: if Redis lost its records,
  // an open one would look absent.
  const hasFailed = outcome.kind === 'retry' || outcome.kind === 'parked';
  const isBeingDeleted = claim.metadata.deletionTimestamp !== undefined;
  if (outcome.kind === 'done' || (hasFailed && isBeingDeleted))
    await removeClaimFinalizer(ports, claim);
  return outcome.kind === 'done' ? ((await releaseCloneSource(ports, claim)) ?? outcome) : outcome;
}

async function releaseNameAndRoom(ports: ProcessorPorts, uid: string): Promise<void> {
  await freeName(ports, uid);
  await ports.nodeLocal?.room.release(uid);
}
