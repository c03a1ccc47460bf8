import type { Claim } from '../../kube/objects.ts';
import { readClaim } from '../../kube/read-claim.ts';
import type { JobKey } from '../../queue/contract.ts';
import type { Begun, Run } from '../../queue/run.ts';
import { type Outcome, WORKER_STOPPING } from '../../queue/outcome.ts';
import { askRedis } from '../../redis/ask-redis.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import type { Dependencies } from '../dependencies.ts';
import { waitForClassLimit, withinClassLimit } from '../class-limit.ts';
import { finished } from '../mark-job.ts';
import { releaseCloneSource } from '../release-sources.ts';
import { createVolume, delayIfRecentlyInfeasible } from './create-volume.ts';
import {
  endWithoutCreation,
  type Intent,
  planClaim,
  planFromJournal,
  stayInJournal,
} from './plan-claim.ts';
import { findVolume } from './write-volume.ts';

/** One run of a claim's job: reads the claim, plans its volume, marks the job, has the driver
 * create the volume, writes the PV; then the job is done (docs/leak-proof.md, R1 to R7).
 *
 * What an earlier run has begun is brought to an end, whatever became of the claim: then the
 * journal says what the volume is to be, the driver answers with the one that exists, and its PV is
 * written; the ordinary deletion reclaims it.
 * @throws KubeError, RedisUnavailable */
export async function reconcileClaim(deps: Dependencies, job: JobKey, run: Run): Promise<Outcome> {
  const limited = await waitForClassLimit(deps, job, run);
  if (limited !== undefined) return limited;
  const startMs = deps.clock.nowMs();
  const begun = await askRedis(run.begun());
  const claim = await seeClaim(deps, job, run, begun);
  const classOf = (of: Claim | undefined) => of && deps.cluster.classOf(classNameOf(of));
  const delayed = await delayIfRecentlyInfeasible(deps, claim, run);
  if (delayed !== undefined) return delayed;
  const written = await endIfWritten(deps, job, run, begun);
  const intent: Intent =
    written === undefined
      ? await plan(deps, { job, run, begun }, claim)
      : { kind: 'wait', outcome: written };
  if (run.signal.aborted) return WORKER_STOPPING;
  // Of a claim that is gone, the limit is that of its class too.
  const cls = classOf(intent.kind === 'create' ? intent.claim : claim);
  const isNeeded = intent.kind === 'create';
  const outcome = await withinClassLimit(deps, { key: job, cls, isNeeded }, () =>
    intent.kind === 'create'
      ? createVolume(deps, {
          job,
          run,
          claim: intent.isGone ? undefined : intent.claim,
          planned: intent.planned,
          isBegun: begun.leftMs !== undefined,
          startMs,
        })
      : endWithoutCreation(deps, claim, intent),
  );
  countFailure(deps, claim, intent, outcome);
  if (outcome.kind !== 'done' || claim === undefined) return outcome;
  return (await releaseCloneSource(deps, claim)) ?? outcome;
}

/** R2: a run that is not the job's first looks for the PV that an earlier one may have written. */
async function endIfWritten(
  deps: Dependencies,
  job: JobKey,
  run: Run,
  { leftMs }: Begun,
): Promise<Outcome | undefined> {
  if (run.count === 1 && leftMs === undefined) return undefined;
  const found = await findVolume(deps, job.uid);
  if (found === undefined) return undefined;
  return found === 'leaving'
    ? { kind: 'later', reason: 'the PersistentVolume is being deleted' }
    : finished(`volume ${found} exists`, leftMs);
}

/** R1: plans by the claim; by the journal, where the claim is gone and a call was begun for it. */
async function plan(
  deps: Dependencies,
  { job, run, begun }: { readonly job: JobKey; readonly run: Run; readonly begun: Begun },
  claim: Claim | undefined,
): Promise<Intent> {
  const { journal } = run.facts;
  const planned = await planClaim(deps, claim, begun);
  // M4: what is begun does not move to another node before the driver has answered.
  if (planned.kind === 'reschedule' && begun.leftMs !== undefined)
    return { ...planned, kind: 'refuse' };
  if (planned.kind === 'none' && begun.leftMs !== undefined) {
    // Without a journal nothing is known of it: its volume may be left, as with upstream.
    if (journal === '') return { kind: 'wait', outcome: finished(planned.reason, begun.leftMs) };
    const intent = await planFromJournal(deps, job, journal, begun);
    return intent.kind === 'create'
      ? { ...intent, isGone: true }
      : { kind: 'wait', outcome: stayInJournal(deps, job, whyUnplanned(intent), begun.leftMs) };
  }
  return planned.kind === 'create' && journal === undefined
    ? { kind: 'none', reason: 'it gets a job of which the journal knows' }
    : planned;
}

/** Why nothing can be planned, and what would change that. */
function whyUnplanned(
  intent: Exclude<Intent, { kind: 'create' }>,
): Parameters<typeof stayInJournal>[2] {
  const reason = 'reason' in intent ? intent.reason : intent.kind;
  return {
    why: ('message' in intent ? intent.message : undefined) ?? reason,
    until: 'waitsFor' in intent ? intent.waitsFor : [],
  };
}

/** The claim as this run sees it. Where ingest is the same process, the first run of a job takes it
 * from its watch, as it was a moment ago. A process that serves one node reads it, since a node may
 * have been selected meanwhile. */
async function seeClaim(
  { cluster, driver }: Dependencies,
  job: JobKey,
  run: Run,
  { leftMs }: Begun,
): Promise<Claim | undefined> {
  const isFirst = run.count === 1 && leftMs === undefined && driver.facts().ownNode === undefined;
  return (isFirst ? cluster.freshClaim(job) : undefined) ?? readClaim(cluster.kube, job);
}

/** Counts a run without a volume in upstream's metrics; write-volume.ts counts those with one. Runs
 * that never reached the driver and will be repeated are not counted. */
function countFailure(
  { reports: { counts } }: Dependencies,
  claim: Claim | undefined,
  intent: Intent,
  outcome: Outcome,
): void {
  if (intent.kind === 'none' || outcome.kind === 'later') return;
  if (outcome.kind === 'done' && outcome.needsNode !== true && intent.kind !== 'populator') return;
  counts.countNotProvisioned(claim);
}
