/* The leader: journal, terms and adding jobs. J1 to J5. */
import { dead } from './redis.ts';
import {
  addRule,
  dropRule,
  type Job,
  type LeaderView,
  mayAddDeletion,
  takeFinishedRule,
  untilOfNewJob,
} from './rules.ts';
import {
  type FormerLeader,
  type Leader,
  NO_FORMER_LEADER,
  type RedisData,
  type State,
} from './state.ts';
import type { Steps } from './steps.ts';

export function leaderSteps(steps: Steps): void {
  formerLeaderSteps(steps);
  switch (steps.from.leader.step) {
    case 'dead':
      return steps.progress('a new leader', ({ leader }) => {
        leader.step = 'begin';
        leader.knowsHistory = true;
      });
    case 'begin': // J3 (1)
      return steps.progress('the leader writes its term to Redis', ({ redis, leader }) => {
        redis.term = 'leader';
        leader.knowsHistory = true;
        leader.step = 'list the journal';
      });
    case 'list the journal':
      return steps.progress('the leader lists the journal', (state) => {
        state.leader.step = stepAfterListing(state, steps);
        if (!steps.model.rules.leaderListsJournal) return;
        listJournal(state);
        // Its own writes name the version that it lists, so those of a former leader conflict (J1).
        state.formerLeader.knowsVersion = false;
      });
    case 'drop the jobs of before': // J4
      return steps.progress('the leader drops the jobs of another history', (state) => {
        state.redis.job = dropRule(state.redis.job, viewOf(state), steps.model.rules);
        state.leader.step = 'idle';
      });
    case 'idle':
      return idleSteps(steps);
    case 'await the journal write': // J1
      return steps.progress('the API server acknowledges the journal write', ({ leader }) => {
        leader.step = 'add the job';
      });
    case 'add the job':
      return steps.progress('the leader adds the job', (state) => {
        state.leader.step = 'idle';
        const isAdded = add(state, viewOf(state), steps, { kind: 'creation', until: undefined });
        if (!isAdded || state.redis.job?.kind === 'deletion') state.leader.mustAddAgain = true;
      });
    case 'remove the entry': // J2
      return steps.progress('the leader removes the entry', (state) => {
        state.isInJournal = false;
        state.leader.hasEntry = false;
        state.leader.step = 'remove the job';
      });
    case 'remove the job':
      return steps.progress('the leader removes the finished job', (state) => {
        const { job } = state.redis;
        const answer = takeFinishedRule(job, viewOf(state), steps.model.rules);
        if (answer === 'taken') state.redis.job = undefined;
        state.leader.step = 'idle';
      });
  }
}

/** J4. A leader that finds nothing to drop goes on at once: no such job can come any more without
 * another change of the history. */
function stepAfterListing({ redis: { job } }: State, { model }: Steps): Leader['step'] {
  const isToDrop = model.rules.otherHistoryIsDropped && job?.isOfHistory === false;
  return isToDrop ? 'drop the jobs of before' : 'idle';
}

/** What the scripts of the leader compare. */
export function viewOf({ redis, leader }: State): LeaderView {
  return { hasTerm: redis.term === 'leader', knowsHistory: leader.knowsHistory };
}

/** What those of the former leader compare. */
export function formerViewOf({ redis, formerLeader }: State): LeaderView {
  return { hasTerm: redis.term === 'former leader', knowsHistory: formerLeader.knowsHistory };
}

type Wanted = Pick<Job, 'kind' | 'until'>;

/** J4, in one step.
 * @returns false where another leader has begun, or Redis has another history */
function add(state: State, view: LeaderView, { model }: Steps, wanted: Wanted): boolean {
  const answer = addRule(state.redis.job, view, wanted, model.rules);
  if (answer.kind === 'added') state.redis.job = answer.job;
  return answer.kind !== 'outdated';
}

/** J3 (2). Each entry needs a job again, since the leader does not know what its jobs have done. */
function listJournal({ isInJournal, leader }: State): void {
  leader.hasEntry = isInJournal;
  if (isInJournal) leader.mustAddAgain = true;
}

function idleSteps(steps: Steps): void {
  const { from, model } = steps;
  const { leader, isInJournal } = from;
  if (!leader.knowsHistory) historyStep(steps);
  if (model.rules.leaderListsJournal && isInJournal && !leader.hasEntry)
    steps.progress('the leader lists the journal again', listJournal);
  if (leader.mustAddAgain) addAgainStep(steps);
  if (from.isClaimThere && from.pv.phase === 'none' && !from.redis.job) newClaimStep(steps);
  finishedSteps(steps);
  leftoverStep(steps);
  deletionStep(steps);
}

/** J3: the history has changed, so the leader begins again. */
function historyStep(steps: Steps): void {
  steps.progress('the leader notices the new history', (state) => {
    const { redis, leader } = state;
    leader.knowsHistory = true;
    redis.term = 'leader';
    leader.step = stepAfterListing(state, steps);
    const { journalAgainAfterChange } = steps.model.rules;
    if (journalAgainAfterChange && leader.hasEntry) leader.mustAddAgain = true;
  });
}

/** J3 (3): waits for the end of a deletion of that UID. */
function addAgainStep(steps: Steps): void {
  const { from, model } = steps;
  const wanted: Wanted = { kind: 'creation', until: untilOfNewJob(false, model.rules) };
  const answer = addRule(from.redis.job, viewOf(from), wanted, model.rules);
  if (answer.kind === 'outdated' || answer.job.kind === 'deletion') return;
  steps.progress('the leader adds the job of a listed entry', (state) => {
    add(state, viewOf(state), steps, wanted);
    state.leader.mustAddAgain = false;
  });
}

/** A claim without PV and job. */
function newClaimStep(steps: Steps): void {
  const { from, model } = steps;
  const { leader } = from;
  if (!leader.hasEntry && model.rules.journalFirst) {
    steps.progress('the leader writes the entry to the journal', (state) => {
      state.isInJournal = true;
      state.leader.hasEntry = true;
      state.leader.step = 'await the journal write';
    });
    return;
  }
  const wanted: Wanted = { kind: 'creation', until: undefined };
  const answer = addRule(from.redis.job, viewOf(from), wanted, model.rules);
  if (leader.mustAddAgain || answer.kind === 'outdated') return;
  steps.progress('the leader adds a job', (state) => {
    add(state, viewOf(state), steps, wanted);
  });
}

/** J2. */
function finishedSteps(steps: Steps): void {
  const { from, model } = steps;
  const { leader, redis, pv, isClaimThere } = from;
  if (!leader.hasEntry) return;
  if (isCreation(redis.job) && takeFinishedRule(redis.job, viewOf(from), model.rules) === 'taken')
    steps.progress('the leader sees the finished job', beginRemoval);
  if (!model.rules.entryLeavesWhenFinished && (pv.phase !== 'none' || !isClaimThere))
    steps.progress('the leader sees a PV or no claim', beginRemoval);
}

function isCreation(job: Job | undefined): boolean {
  return job?.kind === 'creation';
}

/** A finished deletion, or a finished creation of a claim without an entry. */
function leftoverStep(steps: Steps): void {
  const { from, model } = steps;
  const { job } = from.redis;
  if (isCreation(job) && from.leader.hasEntry) return;
  if (takeFinishedRule(job, viewOf(from), model.rules) !== 'taken') return;
  steps.progress('the leader removes a finished job that frees no entry', (state) => {
    state.redis.job = undefined;
  });
}

function beginRemoval({ leader }: State): void {
  leader.mustAddAgain = false;
  leader.step = 'remove the entry';
}

/** J5. */
function deletionStep(steps: Steps): void {
  const { from, model } = steps;
  if (from.pv.phase !== 'released') return;
  if (!mayAddDeletion(from.redis.job, from.leader.hasEntry, model.rules)) return;
  const wanted: Wanted = { kind: 'deletion', until: undefined };
  if (addRule(from.redis.job, viewOf(from), wanted, model.rules).kind === 'outdated') return;
  steps.progress('the leader adds the deletion', (state) => {
    add(state, viewOf(state), steps, wanted);
  });
}

/** The leader dies, or it stands still before its next step and another process leads. That changes
 * whose the term in Redis is, but nothing there: after copySteps. */
export function changeOfLeaderSteps(steps: Steps): void {
  const { leader, formerLeader, faults } = steps.from;
  if (faults.replacedLeaders === 0 || leader.step === 'dead') return;
  steps.event('the leader dies', (state) => {
    state.faults.replacedLeaders -= 1;
    endTerms(state, 'other');
    state.leader = dead(state.leader);
  });
  const step = stepLeft(steps.from);
  if (step === 'none' || formerLeader.step !== 'none') return;
  steps.event(`the leader is replaced, and stands still (next: ${step})`, (state) => {
    state.faults.replacedLeaders -= 1;
    endTerms(state, 'former leader');
    const { knowsHistory, mustAddAgain } = leader;
    state.formerLeader = { step, knowsHistory, mustAddAgain, knowsVersion: true };
    state.leader = dead(state.leader);
  });
}

/** What a leader that is replaced now may do afterwards. */
function stepLeft({ leader, isClaimThere, pv }: State): FormerLeader['step'] {
  if (leader.step === 'idle') {
    if (leader.hasEntry) return 'add the job again';
    return isClaimThere && pv.phase === 'none' ? 'write the journal' : 'none';
  }
  return LEFT_STEPS.find((step) => step === leader.step) ?? 'none';
}

const LEFT_STEPS = [
  'begin',
  'await the journal write',
  'add the job',
  'remove the entry',
  'drop the jobs of before',
] as const;

/** The term in Redis, and in its copy, is not the leader's any more. */
function endTerms({ redis, redisCopy, formerLeader }: State, of: 'former leader' | 'other'): void {
  const isLater = of === 'other' && formerLeader.step !== 'none';
  for (const data of redisCopy ? [redis, redisCopy.data] : [redis]) {
    if (data.term === 'leader') data.term = isLater ? 'later' : of;
    else if (of === 'former leader' && data.term !== 'none') data.term = 'other';
  }
}

function formerLeaderSteps(steps: Steps): void {
  const { step, mustAddAgain } = steps.from.formerLeader;
  if (step === 'none') return;
  steps.progress(`the former leader goes on: ${step}`, (state) => {
    formerLeaderGoesOn(state, steps, mustAddAgain);
    state.formerLeader = { ...NO_FORMER_LEADER };
  });
  steps.progress('the former leader ends', (state) => {
    state.formerLeader = { ...NO_FORMER_LEADER };
  });
}

/** J3: a term only goes up, and the former leader's is the lower one. */
export function mayWriteTerm({ term }: RedisData): boolean {
  return term !== 'leader' && term !== 'later';
}

function formerLeaderGoesOn(state: State, steps: Steps, mustAddAgain: boolean): void {
  const { step, knowsVersion } = state.formerLeader;
  const { rules } = steps.model;
  const again = untilOfNewJob(!mustAddAgain, rules);
  switch (step) {
    case 'none':
      return;
    case 'begin':
      if (mayWriteTerm(state.redis)) state.redis.term = 'former leader';
      return;
    case 'await the journal write':
    case 'add the job':
      add(state, formerViewOf(state), steps, { kind: 'creation', until: undefined });
      return;
    case 'add the job again':
      add(state, formerViewOf(state), steps, { kind: 'creation', until: again });
      return;
    case 'drop the jobs of before':
      state.redis.job = dropRule(state.redis.job, formerViewOf(state), rules);
      return;
    case 'remove the entry':
      if (knowsVersion) state.isInJournal = false;
      return;
    case 'write the journal':
      state.isInJournal = true;
  }
}
