/* The faults of Redis, and BullMQ's care for jobs whose run is over. */
import { crash } from './run.ts';
import {
  copyOf,
  type Leader,
  NO_FORMER_LEADER,
  type RedisData,
  RUN_OF,
  type State,
  WORKER_IDS,
  type WorkerId,
} from './state.ts';
import type { Steps } from './steps.ts';

export function redisSteps(steps: Steps): void {
  const { faults, redisCopy, redis } = steps.from;
  if (faults.emptyings > 0)
    steps.event('Redis is emptied', (state) => {
      state.faults.emptyings -= 1;
      emptyRedis(state);
    });
  if (faults.setBacks > 0 && redisCopy)
    steps.event('Redis goes back to the copy', (state) => {
      state.faults.setBacks -= 1;
      setBack(state);
    });
  if (redis.job?.lock === 'ended') stalledStep(steps);
  if (faults.dropInDeaths > 0)
    steps.event('leader, workers and Redis die together', (state) => {
      state.faults.dropInDeaths -= 1;
      state.leader = dead(state.leader);
      state.formerLeader = { ...NO_FORMER_LEADER };
      for (const id of WORKER_IDS) crash(state, id);
      emptyRedis(state);
    });
}

/** A replica takes over that has all data: after copySteps, since it loses nothing. */
export function failoverStep(steps: Steps): void {
  if (steps.from.faults.setBacks === 0) return;
  steps.event('Redis fails over with all its data', (state) => {
    state.faults.setBacks -= 1;
    beginHistory(state);
  });
}

/** The leader dies. */
export function dead({ knowsHistory }: Leader): Leader {
  return { step: 'dead', knowsHistory, hasEntry: false, mustAddAgain: false };
}

/** BullMQ finds a job whose lock nobody renews. */
export function stalledStep(steps: Steps): void {
  steps.progress('the stalled job waits again', ({ redis: { job } }) => {
    if (!job) return;
    job.phase = 'waiting';
    job.lock = 'none';
  });
}

function emptyRedis(state: State): void {
  state.redis = { job: undefined, term: 'none' };
  beginHistory(state);
}

/** What was read or written before belongs to an earlier history now. */
function beginHistory(state: State): void {
  state.leader.knowsHistory = false;
  state.formerLeader.knowsHistory = false;
  for (const worker of state.workers) worker.isOfHistory = false;
  if (state.redis.job) state.redis.job.isOfHistory = false;
  state.redisCopy = undefined;
}

function setBack(state: State): void {
  const copy = state.redisCopy;
  if (!copy) return;
  state.redis = copy.data;
  const { job } = state.redis;
  for (const id of WORKER_IDS)
    if (job?.lock === RUN_OF[id] && !copy.isSameRun[id]) job.lock = 'ended';
  beginHistory(state);
}

/** For each step so far that changes Redis: the same step, after which Redis may go back to before
 * it. */
export function copySteps(steps: Steps): void {
  const { from, list } = steps;
  if (from.faults.setBacks === 0 || from.redisCopy) return;
  for (const { what, state } of list.slice()) {
    if (isSameData(from.redis, state.redis)) continue;
    const isSameRun = (id: WorkerId) =>
      from.workers[id].step !== 'idle' && state.workers[id].step !== 'idle';
    const redisCopy = {
      data: { ...from.redis, term: termInCopy(from.redis, state) },
      isSameRun: [isSameRun(0), isSameRun(1)] satisfies [boolean, boolean],
    };
    list.push({
      what: `(Redis is copied) ${what}`,
      isProgress: false,
      state: { ...copyOf(state), redisCopy },
    });
  }
}

/** The term of a leader that dies in that step is nobody's any more. */
function termInCopy({ term }: RedisData, { leader }: State): RedisData['term'] {
  return term === 'leader' && leader.step === 'dead' ? 'other' : term;
}

/** Nobody asks what `until` a deletion has, or whether it is new. */
function isSameData(a: RedisData, b: RedisData): boolean {
  if (a.term !== b.term || !a.job || !b.job) return a.term === b.term && a.job === b.job;
  return (
    a.job.kind === b.job.kind &&
    a.job.phase === b.job.phase &&
    a.job.isOfHistory === b.job.isOfHistory &&
    a.job.lock === b.job.lock &&
    (a.job.kind === 'deletion' || (a.job.until === b.job.until && a.job.isNew === b.job.isNew))
  );
}
