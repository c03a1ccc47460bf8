import type { Claim } from '../../kube/objects.ts';
import type { JobKey } from '../../queue/contract.ts';
import { type Outcome, WORKER_STOPPING } from '../../queue/outcome.ts';
import type { Run } from '../../queue/run.ts';
import { type ClaimAttempt, startAttempt } from '../attempt.ts';
import type { Dependencies } from '../dependencies.ts';
import { addClaimFinalizer, removeClaimFinalizer } from '../finalizers.ts';
import { waitForRecord } from '../outcomes.ts';
import { readClaim } from '../read-objects.ts';
import { releaseCloneSource } from '../release-sources.ts';
import { continueRecord, fitsClaim } from './continue-record.ts';
import { delayIfRecentlyInfeasible, sendPlanned } from './create-volume.ts';
import { decideIntent, endWithoutCreation, type Intent } from './decide-intent.ts';
import { freeName, keepName } from './name-clash.ts';

/** One run of a claim's job: reads the claim, plans its volume, opens the volume record, has the
 * driver create the volume, writes the PV and closes the record. A creation that an earlier run
 * left open is finished, whatever became of the claim (invariant 3).
 * @throws KubeError, RecordsUnavailable, OwnershipLost */
export async function reconcileClaim(deps: Dependencies, job: JobKey, run: Run): Promise<Outcome> {
  const { kube } = deps.cluster;
  const { records } = deps.redis;
  const startMs = deps.clock.nowMs();
  // Taken before the claim is read (record rule 6).
  const { dataEpoch } = records;
  const notYet = await records.whyNotYet(job.uid);
  if (notYet !== undefined) return waitForRecord(notYet);
  let claim = await readClaim(kube, job);
  const delayed = await delayIfRecentlyInfeasible(deps, claim, run);
  if (delayed !== undefined) {
    // The deletion of a claim does not wait for its back-off.
    if (claim?.metadata.deletionTimestamp !== undefined)
      await removeClaimFinalizer(kube, records, claim);
    return delayed;
  }
  const intent = await decideIntent(deps, claim);
  if (intent.kind === 'create') claim = intent.claim ?? claim;
  if (run.signal.aborted) return WORKER_STOPPING;
  if (claim !== undefined && intent.kind === 'create' && deps.settings.usesClaimFinalizer) {
    claim = await addClaimFinalizer(kube, claim);
    if (claim === undefined)
      return { kind: 'later', reason: 'the claim is being deleted, or was replaced' };
  }
  const attempt = startAttempt(deps, { id: job.uid, job, dataEpoch }, startMs);
  const outcome = await createOrFinish(deps, { attempt, claim, run }, intent);
  countAttempt(deps, { claim, intent, outcome, startMs });
  return releaseUnneeded(deps, job.uid, claim, outcome);
}

/** Opens the record. If earlier runs left nothing to finish, sends the request that this run has
 * planned, or ends the run of a claim that gets no volume. */
async function createOrFinish(
  deps: Dependencies,
  claimAttempt: ClaimAttempt,
  intent: Intent,
): Promise<Outcome> {
  const { records } = deps.redis;
  const whyUnfit = fitsClaim(deps, claimAttempt);
  const attempt = { ...claimAttempt.attempt, whyUnfit };
  if (intent.kind !== 'create') {
    const opened = await records.openExisting(attempt.id, attempt);
    return opened.kind === 'none'
      ? endWithoutCreation(deps, claimAttempt.claim, intent)
      : continueRecord(deps, claimAttempt, intent, opened);
  }
  const { planned } = intent;
  const opened = await records.openCreate(attempt.id, { ...attempt, planned, mode: 'plan' });
  return opened.kind === 'opened'
    ? sendPlanned(deps, claimAttempt, planned, opened)
    : continueRecord(deps, claimAttempt, intent, opened);
}

/** Counts the run in upstream's metrics. Runs that never reached the driver and will be repeated
 * are not counted. */
function countAttempt(
  { clock, reports: { counts } }: Dependencies,
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
  deps: Dependencies,
  uid: string,
  claim: Claim | undefined,
  outcome: Outcome,
): Promise<Outcome> {
  const { kube } = deps.cluster;
  const { records, names, openSources } = deps.redis;
  const isAbsent = outcome.kind === 'retry' && outcome.isAbsent === true;
  if (outcome.kind === 'done' || isAbsent) await releaseNameAndRoom(deps, uid);
  else if (claim === undefined) await keepName(names, deps.settings.options, uid);
  if (claim === undefined) return outcome;
  // The finalizer stays while the volume is not done, except on a claim that is being deleted and
  // has no open record. After `later` and `running` it stays there too: if Redis lost its records,
  // an open one would look absent.
  const hasFailed = outcome.kind === 'retry' || outcome.kind === 'parked';
  const isBeingDeleted = claim.metadata.deletionTimestamp !== undefined;
  if (outcome.kind === 'done' || (hasFailed && isBeingDeleted))
    await removeClaimFinalizer(kube, records, claim);
  if (outcome.kind !== 'done') return outcome;
  const { facts } = deps.driver;
  return (await releaseCloneSource({ kube, openSources, facts }, claim)) ?? outcome;
}

async function releaseNameAndRoom(
  { driver, redis, settings }: Dependencies,
  uid: string,
): Promise<void> {
  await freeName(redis.names, settings.options, uid);
  await driver.nodeLocal?.room.release(uid);
}
