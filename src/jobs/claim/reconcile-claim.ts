import { CLAIM_FINALIZER } from '../../kube/keys.ts';
import { isOutage, KubeError } from '../../kube/kube-error.ts';
import type { Claim } from '../../kube/objects.ts';
import type { JobKey } from '../../queue/contract.ts';
import { type Outcome, WORKER_STOPPING } from '../../queue/outcome.ts';
import type { Run } from '../../queue/run.ts';
import { MAX_SILENCE_MS } from '../../queue/watch-life.ts';
import { classNameOf, isNew, selectedNodeOf } from '../../volumes/eligibility.ts';
import { hasFinalizer } from '../../volumes/finalizer-patches.ts';
import { type ClaimAttempt, startAttempt } from '../attempt.ts';
import type { Dependencies } from '../dependencies.ts';
import { addClaimFinalizer, removeClaimFinalizer } from '../finalizers.ts';
import { inTurn } from '../in-turn.ts';
import { reportProvisioningFailed, waitForRecord } from '../outcomes.ts';
import { readCachedClaim, readClaim } from '../read-objects.ts';
import { releaseCloneSource } from '../release-sources.ts';
import { continueRecord, fitsClaim, hasVolume } from './continue-record.ts';
import { delayIfRecentlyInfeasible, sendPlanned } from './create-volume.ts';
import { decideIntent, endWithoutCreation, type Intent } from './decide-intent.ts';
import { freeName, keepName } from './name-clash.ts';

/** One run of a claim's job: reads the claim, unless the job carries a copy that is as good, plans
 * its volume, opens the volume record, has the driver create the volume, writes the PV and closes
 * the record. A creation that an earlier run left open is finished, whatever became of the claim
 * (invariant 3).
 * @throws KubeError, RecordsUnavailable, OwnershipLost */
export async function reconcileClaim(deps: Dependencies, job: JobKey, run: Run): Promise<Outcome> {
  const { kube } = deps.cluster;
  const { records } = deps.redis;
  const startMs = deps.clock.nowMs();
  const notYet = await records.whyNotYet(job.uid);
  if (notYet !== undefined) return waitForRecord(notYet);
  // Taken before the claim is read (record rule 6).
  const dataEpoch = await records.seenDataEpoch();
  const copied = await shownClaim(deps, job, run);
  let claim = copied ?? (await readClaim(kube, job));
  const delayed = await delayIfRecentlyInfeasible(deps, claim, run);
  if (delayed !== undefined) return delayed;
  const wasBegun = claim !== undefined && hasFinalizer(claim, CLAIM_FINALIZER);
  const decided = await decideIntent(deps, claim);
  if (decided.kind === 'create') claim = decided.claim ?? claim;
  // What earlier runs left is not judged on a copy.
  else if (copied !== undefined && (await records.isOpen(job.uid)))
    return reconcileClaim(deps, job, { ...run, shown: {} });
  const intent = canBeTraced(deps, claim, wasBegun) ? decided : UNTRACEABLE;
  if (run.signal.aborted) return WORKER_STOPPING;
  const work = async (): Promise<Outcome> => {
    if (claim !== undefined && intent.kind === 'create' && deps.settings.usesClaimFinalizer) {
      const marked = await markClaim(deps, claim);
      if (marked === undefined) return { kind: 'later', reason: 'the claim has changed meanwhile' };
      claim = marked;
    }
    const readMs = copied === undefined ? startMs : startMs - MAX_SILENCE_MS;
    const attempt = startAttempt(deps, { id: job.uid, job, dataEpoch, wasBegun }, readMs);
    const isCopied = claim !== undefined && claim === copied;
    const outcome = await createOrFinish(deps, { attempt, claim, run }, intent, isCopied);
    countAttempt(deps, { claim, intent, outcome, startMs, queuedMs: run.queuedMs });
    return releaseUnneeded(deps, { uid: job.uid, claim, wasBegun }, outcome);
  };
  const cls = claim && deps.cluster.classOf(classNameOf(claim));
  return inTurn(deps, { key: job, cls, isNeeded: intent.kind === 'create' }, work);
}

/** The claim as it was a moment ago: the copy that the job carries, or what the API server's cache
 * has. For a driver that runs on each node the claim is read, since a node may have been chosen
 * meanwhile; and where calls are so short that the time of an attempt would be over before it
 * begins, since that counts from when the claim was seen. */
async function shownClaim(
  { cluster, driver, redis }: Dependencies,
  job: JobKey,
  { shown: { copy, seen } = {} }: Run,
): Promise<Claim | undefined> {
  if (driver.nodeLocal !== undefined || driver.timeoutMs < MAX_SILENCE_MS) return undefined;
  const copied = await redis.copies.claimOf(job, copy);
  if (copied !== undefined || seen === undefined) return copied;
  const cached = await readCachedClaim(cluster.kube, job, seen);
  return cached !== undefined && isNew(cached) ? cached : undefined;
}

/** Adds our finalizer. The user is told if it is refused.
 * @returns undefined if the claim has changed meanwhile */
function markClaim({ cluster }: Dependencies, claim: Claim): Promise<Claim | undefined> {
  return addClaimFinalizer(cluster.kube, claim).catch((error: unknown) => {
    if (error instanceof KubeError && !isOutage(error))
      reportProvisioningFailed(cluster.events, claim, error.message);
    throw error;
  });
}

/** With soft state nothing is begun for a claim that is being deleted: it takes no new finalizer,
 * so nothing would tell the next process of the call. */
function canBeTraced(
  { settings }: Dependencies,
  claim: Claim | undefined,
  wasBegun: boolean,
): boolean {
  return !settings.isSoftState || wasBegun || claim?.metadata.deletionTimestamp === undefined;
}

const UNTRACEABLE: Intent = {
  kind: 'none',
  reason: 'the claim is being deleted, and nothing was begun for it',
};

/** Opens the record. If earlier runs left nothing to finish, sends the request that this run has
 * planned, or ends the run of a claim that gets no volume.
 * @param isCopied  the claim is a copy, on which nothing that earlier runs left is judged */
async function createOrFinish(
  deps: Dependencies,
  claimAttempt: ClaimAttempt,
  intent: Intent,
  isCopied: boolean,
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
  if (opened.kind === 'opened') return sendPlanned(deps, claimAttempt, planned, opened);
  if (!isCopied) return continueRecord(deps, claimAttempt, intent, opened);
  const claim = await readClaim(deps.cluster.kube, attempt.job);
  return continueRecord(deps, { ...claimAttempt, claim }, await decideIntent(deps, claim), opened);
}

/** Counts the run in upstream's metrics. Runs that never reached the driver and will be repeated
 * are not counted. */
function countAttempt(
  { clock, reports: { counts } }: Dependencies,
  ended: {
    readonly claim: Claim | undefined;
    readonly intent: Intent;
    readonly outcome: Outcome;
    readonly startMs: number;
    readonly queuedMs: number;
  },
): void {
  const { claim, intent, outcome, startMs, queuedMs } = ended;
  if (intent.kind === 'none' || outcome.kind === 'later') return;
  const isDone = outcome.kind === 'done' && outcome.needsNode !== true;
  const endMs = clock.nowMs();
  if (isDone && intent.kind !== 'populator')
    counts.countProvisioned(claim, { tookMs: endMs - startMs, queuedMs, endMs });
  else counts.countNotProvisioned(claim);
}

/** Releases what is no longer needed after this run: the volume's name, the room that is reserved
 * for it, the claim's finalizer, and a claim that clones were created from.
 * @returns the outcome of the run */
async function releaseUnneeded(
  deps: Dependencies,
  o: { readonly uid: string; readonly claim: Claim | undefined; readonly wasBegun: boolean },
  outcome: Outcome,
): Promise<Outcome> {
  const { uid, claim, wasBegun } = o;
  const { kube } = deps.cluster;
  const { names, openSources } = deps.redis;
  if (outcome.kind === 'done' || isAbsent(outcome)) await releaseNameAndRoom(deps, uid);
  else if (claim === undefined) await keepName(names, deps.settings.options, uid);
  if (claim === undefined) return outcome;
  const waitMs = await releaseClaim(deps, claim, { wasBegun, outcome });
  if (outcome.kind !== 'done') return outcome;
  if (waitMs > 0)
    return { kind: 'later', reason: 'an earlier call may still be at work', delayMs: waitMs };
  const { facts } = deps.driver;
  return (await releaseCloneSource({ kube, openSources, facts }, claim)) ?? outcome;
}

function isAbsent(outcome: Outcome): boolean {
  return outcome.kind === 'retry' && outcome.isAbsent === true;
}

function hasFailed({ kind }: Outcome): boolean {
  return kind === 'retry' || kind === 'parked';
}

/** Removes our finalizer from a claim that needs it no longer after a run. If Redis lost its
 * records, an open one looks absent: so a run that found the finalizer there removes it only if
 * absence is proven or the claim's PV exists; or if the claim is being deleted and can't be
 * provisioned, since nobody else could.
 * @returns when that is, if the end of the wait is known, else 0 */
async function releaseClaim(
  deps: Dependencies,
  claim: Claim,
  { wasBegun, outcome }: { readonly wasBegun: boolean; readonly outcome: Outcome },
): Promise<number> {
  const { ownNode } = deps.driver.facts();
  if (!hasOurFinalizer(claim, ownNode)) return 0;
  const { uid, deletionTimestamp } = claim.metadata;
  const isProven = !wasBegun || isAbsent(outcome);
  const isStuck = deletionTimestamp !== undefined && hasFailed(outcome);
  if (!isProven && !isStuck && outcome.kind !== 'done') return 0;
  const { waitMs, isUnseen } = await deps.redis.records.finalizerNeed(uid, wasBegun);
  if (waitMs > 0) return Number.isFinite(waitMs) ? waitMs : 0;
  if (isUnseen && !isProven && !(await mayForget(deps, claim))) return 0;
  await removeClaimFinalizer(deps.cluster.kube, claim, ownNode);
  return 0;
}

/** Where this process serves one node, the finalizer of all other claims may be another's. */
function hasOurFinalizer(claim: Claim, ownNode: string | undefined): boolean {
  const isOurs = ownNode === undefined || selectedNodeOf(claim) === ownNode;
  return isOurs && hasFinalizer(claim, CLAIM_FINALIZER);
}

/** Whether a claim may lose our finalizer although an earlier process may have had a volume made
 * for it: its PV exists, or it is being deleted and nobody can find out. */
async function mayForget(deps: Dependencies, { metadata }: Claim): Promise<boolean> {
  const { uid, namespace, name, deletionTimestamp } = metadata;
  if (await hasVolume(deps, uid)) return true;
  if (deletionTimestamp === undefined) return false;
  deps.reports.log.warn(
    { claim: `${namespace}/${name}`, uid },
    'the claim is being deleted, and a volume may exist that nothing names: sutler audit finds it',
  );
  return true;
}

async function releaseNameAndRoom(
  { driver, redis, settings }: Dependencies,
  uid: string,
): Promise<void> {
  await freeName(redis.names, settings.options, uid);
  await driver.nodeLocal?.room.release(uid);
}
