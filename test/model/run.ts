/* What a run's scripts do to its job, and how a run ends. */
import { unmarkRule } from './rules.ts';
import { IDLE_WORKER, RUN_OF, type State, type WorkerId } from './state.ts';

export function hasLock({ redis }: State, id: WorkerId): boolean {
  return redis.job?.lock === RUN_OF[id];
}

/** The worker has no run any more. */
export function becomeIdle(state: State, id: WorkerId): void {
  state.workers[id] = { ...IDLE_WORKER };
  if (state.redisCopy) state.redisCopy.isSameRun[id] = false;
}

/** The job waits for another run. */
export function giveBack(state: State, id: WorkerId): void {
  const { job } = state.redis;
  if (job && hasLock(state, id)) {
    job.phase = 'waiting';
    job.lock = 'none';
  }
  becomeIdle(state, id);
}

/** The run ends its job, if it still holds it. The leader removes it. */
export function finishJob(state: State, id: WorkerId, isHeld = hasLock(state, id)): void {
  const { job } = state.redis;
  if (job && isHeld) {
    const { kind, isOfHistory } = job;
    const finished = { phase: 'finished', until: undefined, isNew: false, lock: 'none' } as const;
    state.redis.job = { kind, isOfHistory, ...finished };
  }
  becomeIdle(state, id);
}

/** M3: the call can have left nothing. */
export function unmark(state: State, id: WorkerId): void {
  const { job } = state.redis;
  if (job) job.until = unmarkRule(job, hasLock(state, id), state.workers[id].until);
}

/** The process dies; its call stays at work. */
export function crash(state: State, id: WorkerId): void {
  abandonCall(state, id);
  becomeIdle(state, id);
}

/** Nobody waits for the worker's call any more. */
export function abandonCall({ calls }: State, id: WorkerId): void {
  for (const call of calls) if (call.caller === RUN_OF[id]) call.caller = 'none';
}
