/* The creation protocol of docs/leak-proof.md: all steps that are possible in a state, and what
 * must hold in every state. */
import { clusterSteps, tickSteps } from './cluster.ts';
import { driverSteps } from './driver.ts';
import { changeOfLeaderSteps, leaderSteps } from './leader.ts';
import { copySteps, failoverStep, redisSteps } from './redis.ts';
import { NO_HANDLE, type State, WRONGLY_DELETED } from './state.ts';
import { type Model, type Step, Steps } from './steps.ts';
import { workerSteps } from './worker.ts';

/** Every process may stand still between any two of its steps for any time, so each step of each
 * process is possible as soon as its own conditions hold. */
export function listSteps(model: Model, from: State): readonly Step[] {
  const steps = new Steps(model, from);
  clusterSteps(steps);
  driverSteps(steps);
  redisSteps(steps);
  leaderSteps(steps);
  workerSteps(steps);
  copySteps(steps);
  failoverStep(steps);
  changeOfLeaderSteps(steps);
  tickSteps(steps);
  return steps.list;
}

/** What is wrong in a state.
 *
 * P1: a volume has a PV, or something is left that will make one or find out that none is needed.
 * P2: a Bound PV has its volume. */
export function findViolation(state: State): string | undefined {
  const { volume, pv } = state;
  if (volume === WRONGLY_DELETED) return 'P2: the volume of a Bound PV is deleted';
  const hasPv = pv.phase !== 'none' && pv.handle === volume;
  if (volume !== NO_HANDLE && !hasPv && !isCovered(state))
    return 'P1: a volume that nothing covers';
  if (pv.phase === 'bound' && pv.handle !== volume) return 'P2: a Bound PV without its volume';
  return undefined;
}

/** Something will look at the volume again: the journal's entry, a job, a run that is about to
 * write the PV, or the claim itself. */
function isCovered({
  volume,
  pv,
  isInJournal,
  redis: { job },
  workers,
  isClaimThere,
}: State): boolean {
  return (
    isInJournal ||
    (job?.kind === 'creation' && job.phase !== 'finished') ||
    workers.some(({ step, handle }) => step === 'write the PV' && handle === volume) ||
    (isClaimThere && pv.phase === 'none')
  );
}

/** P3: from every state the steps of progress can lead to such a one. */
export function isSettled({ isClaimThere, pv, volume, ...rest }: State): boolean {
  if (rest.calls.length > 0 || rest.workers.some(({ step }) => step !== 'idle')) return false;
  if (isClaimThere) return pv.phase === 'bound' && pv.handle === volume;
  const isGone = volume === NO_HANDLE && pv.phase === 'none';
  return isGone && !rest.isInJournal && rest.redis.job === undefined;
}
