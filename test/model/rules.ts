/* The rules of the creation protocol (docs/leak-proof.md) as pure functions. The steps of the model
 * call them, and a test can compare the scripts of src/queue/ with them. Time is counted in ticks
 * that are left, so that equal situations are equal states. */

/** Each can be switched off, to show what it prevents. */
export const ALL_RULES = {
  /** J1: a claim is in the journal before its first job is added. */
  journalFirst: true,
  /** J2: an entry leaves when its job is finished. Off: when the claim has a PV or is gone. */
  entryLeavesWhenFinished: true,
  /** J2: a finished job counts only under its own history of Redis. */
  finishedCountsInItsHistory: true,
  /** J3: a leader that begins lists the journal and adds a job for each entry. */
  leaderListsJournal: true,
  /** J3: these jobs begin in doubt. */
  listedJobsBeginInDoubt: true,
  /** J3: that doubt includes the grace of a call that another run may be about to send. */
  doubtIncludesGrace: true,
  /** J3: the leader adds the jobs of the journal again when the history changes. */
  journalAgainAfterChange: true,
  /** J4: adding a job needs the leader's own term in Redis. */
  addingNeedsTerm: true,
  /** J4 and M1: a job of another history is dropped by the leader before it adds any, and its run
   * ends instead of marking. */
  otherHistoryIsDropped: true,
  /** J5: a deletion is added only while the claim is not in the journal. */
  deletionAwaitsJournal: true,
  /** M1: the mark before a call sets `until`. */
  markSetsUntil: true,
  /** M1: a run that no longer holds its job's lock ends instead of marking. */
  markNeedsLock: true,
  /** M2: a call is sent within grace after its mark. */
  callIsSentInGrace: true,
  /** M2: a run writes the PV only within D after its mark, less the API timeout. */
  pvIsWrittenInTime: true,
  /** M3: `until` stays after a call that may have left something. Off: a success takes it back. */
  successKeepsUntil: true,
  /** M3: the same for a call of unknown end. */
  unknownEndKeepsUntil: true,
  /** M4: finishing needs the job's lock. */
  finishNeedsLock: true,
  /** M4: a run that began in doubt, or saw a PV in doubt, gives its job back until that is over. */
  finishAwaitsDoubt: true,
  /** R5: a refusal in doubt does not finish the job of a claim that is gone. */
  refusalInDoubtProvesNothing: true,
  /** R6: an unknown end does not finish the job of a claim that is gone. */
  unknownEndIsRetried: true,
  /** D1: a PV is removed only if it is the PV that the run read. */
  pvIsRemovedByUid: true,
};
export type Rules = Readonly<Record<keyof typeof ALL_RULES, boolean>>;

/* Periods in ticks. The end of a period belongs to it, so a timer starts with one tick more. */
const GRACE = 1;
const TIMEOUT = 0;
const SETTLE_TIME = 1;
const D = GRACE + TIMEOUT + SETTLE_TIME;

/** Timers as they start. */
export const TICKS = {
  /** In which a call may be sent. */
  grace: GRACE + 1,
  /** In which a call may be at work in the driver. */
  call: TIMEOUT + SETTLE_TIME + 1,
  /** What is left of that when the call's deadline is over. */
  settle: SETTLE_TIME + 1,
  /** In which a PV may be written or removed. */
  write: D + 1,
  /** From now to `until` after a mark. */
  doubt: D + 1,
} as const;

/** Ticks until no call of an earlier run can be at work in the driver. Undefined: no call was ever
 * begun; 0: begun, and over; more: in doubt. */
export type Until = number | undefined;

export type Run = 'worker 1' | 'worker 2';

/** The job of the claim's UID in Redis: there is at most one. */
export interface Job {
  kind: 'creation' | 'deletion';
  phase: 'waiting' | 'active' | 'finished';
  /** Whether it belongs to the present history of Redis. */
  isOfHistory: boolean;
  until: Until;
  /** No run has taken it yet. */
  isNew: boolean;
  /** Whose run holds the job's lock. `ended`: a run that is over, after Redis was set back. */
  lock: 'none' | Run | 'ended';
}

/** What a leader's script compares. */
export interface LeaderView {
  /** Its own term is in Redis. */
  readonly hasTerm: boolean;
  /** It knows the present history of Redis. */
  readonly knowsHistory: boolean;
}

/** J3: what `until` is in a job that is added. An entry that the leader only found in the journal
 * may have had jobs that it knows nothing of.
 * @param isFirstJob  the leader itself has just written the entry */
export function untilOfNewJob(isFirstJob: boolean, rules: Rules = ALL_RULES): Until {
  if (isFirstJob || !rules.listedJobsBeginInDoubt) return undefined;
  return rules.doubtIncludesGrace ? TICKS.doubt : TICKS.doubt - GRACE;
}

/** J4: what a leader does that has begun, before it adds any job.
 * @returns the job that is in Redis afterwards */
export function dropRule(
  job: Job | undefined,
  leader: LeaderView,
  rules: Rules = ALL_RULES,
): Job | undefined {
  const isOutdated = !leader.knowsHistory || (rules.addingNeedsTerm && !leader.hasTerm);
  return isOutdated || job?.isOfHistory === true || !rules.otherHistoryIsDropped ? job : undefined;
}

/** J4: adds a job in one step, unless another leader has begun or Redis has another history. A job
 * of the same history stays. Those of another history are to be dropped first.
 * @returns the job that is in Redis afterwards */
export function addRule(
  job: Job | undefined,
  leader: LeaderView,
  wanted: { readonly kind: Job['kind']; readonly until: Until },
  rules: Rules = ALL_RULES,
): { readonly kind: 'outdated' } | { readonly kind: 'added' | 'stays'; readonly job: Job } {
  if (!leader.knowsHistory || (rules.addingNeedsTerm && !leader.hasTerm))
    return { kind: 'outdated' };
  if (job && !job.isOfHistory && rules.otherHistoryIsDropped) return { kind: 'outdated' };
  if (job) return { kind: 'stays', job };
  const added = { phase: 'waiting', isOfHistory: true, isNew: true, lock: 'none' } as const;
  return { kind: 'added', job: { ...added, ...wanted } };
}

/** J5: whether the leader may add a deletion. Adding then needs what addRule needs. */
export function mayAddDeletion(
  job: Job | undefined,
  isInJournal: boolean,
  rules: Rules = ALL_RULES,
): boolean {
  if (rules.deletionAwaitsJournal && isInJournal) return false;
  return job === undefined;
}

/** J2: whether the leader takes a job as finished. That of a creation lets it remove the claim's
 * entry. */
export function takeFinishedRule(
  job: Job | undefined,
  leader: LeaderView,
  rules: Rules = ALL_RULES,
): 'outdated' | 'unfinished' | 'taken' {
  if (rules.addingNeedsTerm && !leader.hasTerm) return 'outdated';
  if (job?.phase !== 'finished') return 'unfinished';
  const counts = leader.knowsHistory && job.isOfHistory;
  return counts || !rules.finishedCountsInItsHistory ? 'taken' : 'outdated';
}

/** What a run's script compares. */
export interface RunView {
  /** The job that the run took belongs to the present history. */
  readonly isOfHistory: boolean;
  readonly hasLock: boolean;
}

export type Marked =
  /** The run ends, and gives the job back if it holds it. The leader drops it. */
  | { readonly kind: 'other-history' }
  /** The run ends. */
  | { readonly kind: 'lock-lost' }
  /** `before`: as the job was until now; `until`: as it is from now on. */
  | { readonly kind: 'marked'; readonly before: Until; readonly until: Until };

/** M1: marks the job right before a call. */
export function markRule(job: Job | undefined, run: RunView, rules: Rules = ALL_RULES): Marked {
  if (rules.otherHistoryIsDropped && !run.isOfHistory) return { kind: 'other-history' };
  if (rules.markNeedsLock && !run.hasLock) return { kind: 'lock-lost' };
  const before = job?.until;
  const until = rules.markSetsUntil ? Math.max(before ?? 0, TICKS.doubt) : before;
  return { kind: 'marked', before, until };
}

/** M3: `until` after a call that can have left nothing.
 * @param before  as the mark returned it, less the time since */
export function unmarkRule(job: Job, hasLock: boolean, before: Until): Until {
  return hasLock ? before : job.until;
}

/** M4: ends the job of a run. */
export function finishRule(hasLock: boolean, rules: Rules = ALL_RULES): 'finished' | 'lock-lost' {
  return hasLock || !rules.finishNeedsLock ? 'finished' : 'lock-lost';
}

/** Whether calls of earlier runs may still be at work. */
export function isInDoubt(until: Until): boolean {
  return until !== undefined && until > 0;
}

/** R1 and R2: what a run does once it has the claim.
 * @param isGone  a read that is not from a cache says so
 * @param isFirstRun  no earlier run has taken the job */
export function afterClaimRule(
  isGone: boolean,
  isFirstRun: boolean,
  until: Until,
): 'finish' | 'look for the PV' | 'call the driver' {
  if (isGone && until === undefined) return 'finish';
  return isFirstRun && until === undefined ? 'call the driver' : 'look for the PV';
}

/** R2: what a run does that sees the PV. */
export function seenPvRule(until: Until, rules: Rules = ALL_RULES): 'finish' | 'later' {
  return rules.finishAwaitsDoubt && isInDoubt(until) ? 'later' : 'finish';
}

/** R4 and M4: what a run does that has written the PV.
 * @param doubtLeft  what is left of the doubt that the mark returned */
export function writtenRule(doubtLeft: number, rules: Rules = ALL_RULES): 'finish' | 'later' {
  return rules.finishAwaitsDoubt && doubtLeft > 0 ? 'later' : 'finish';
}

/** R5: what a run does after a final refusal.
 * @param beganInDoubt  the mark returned a time in the future */
export function refusedRule(
  isGone: boolean,
  beganInDoubt: boolean,
  rules: Rules = ALL_RULES,
): 'finish' | 'retry' {
  if (beganInDoubt && rules.refusalInDoubtProvesNothing) return 'retry';
  return isGone ? 'finish' : 'retry';
}

/** R6: what a run does after an unknown end. */
export function unknownEndRule(isGone: boolean, rules: Rules = ALL_RULES): 'finish' | 'retry' {
  return isGone && !rules.unknownEndIsRetried ? 'finish' : 'retry';
}
