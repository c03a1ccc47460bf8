/* The user, Kubernetes' volume controller, and time. */
import { isInDoubt, TICKS, type Until } from './rules.ts';
import type { State } from './state.ts';
import type { Steps } from './steps.ts';

export function clusterSteps(steps: Steps): void {
  const { isClaimThere, pv } = steps.from;
  if (isClaimThere)
    steps.event('the user deletes the claim', (state) => {
      state.isClaimThere = false;
    });
  if (pv.phase === 'written' && isClaimThere)
    steps.progress('the PV is Bound', (state) => {
      state.pv.phase = 'bound';
    });
  if ((pv.phase === 'written' || pv.phase === 'bound') && !isClaimThere)
    steps.progress('the PV is Released', (state) => {
      state.pv.phase = 'released';
    });
}

/** A tick ends every timer a little. A call that somebody waits for is answered by its deadline,
 * and an abandoned call ends by the settle time after it, so a tick waits for them. */
export function tickSteps(steps: Steps): void {
  const { calls } = steps.from;
  const isDue = calls.some(({ caller, left }) => left <= (caller === 'none' ? 1 : TICKS.settle));
  if (isDue || !isAnyTimerOn(steps.from)) return;
  steps.progress('a tick', (state) => {
    for (const call of state.calls) call.left -= 1;
    const { redis, redisCopy } = state;
    if (redis.job) redis.job.until = tick(redis.job.until);
    if (redisCopy?.data.job) redisCopy.data.job.until = tick(redisCopy.data.job.until);
    for (const worker of state.workers) {
      worker.until = tick(worker.until);
      worker.doubtLeft = tick(worker.doubtLeft);
      worker.sendLeft = tick(worker.sendLeft);
      worker.writeLeft = tick(worker.writeLeft);
    }
  });
}

function tick<T extends Until>(left: T): T | number {
  return left === undefined ? left : Math.max(0, left - 1);
}

function isAnyTimerOn({ calls, redis, redisCopy, workers }: State): boolean {
  const untils = [redis.job?.until, redisCopy?.data.job?.until, ...workers.map((w) => w.until)];
  return (
    calls.length > 0 ||
    untils.some(isInDoubt) ||
    workers.some((w) => w.doubtLeft > 0 || w.sendLeft > 0 || w.writeLeft > 0)
  );
}
