/* States from which the same can happen count as one: what no later step asks for is forgotten, and
 * it does not matter which of the two workers is the first. */
import type { Job } from './rules.ts';
import {
  type FormerLeader,
  IDLE_WORKER,
  RUN_OF,
  type State,
  type Worker,
  type WorkerId,
  WORKER_IDS,
  WORKER_STEPS,
} from './state.ts';

/** Changes a state into the one that stands for all such states, and returns it. */
export function canonical(state: State): State {
  const { leader, formerLeader, workers, redis, redisCopy } = state;
  for (const worker of workers) Object.assign(worker, FORGOTTEN[worker.step]);
  // Each is read or written anew by a leader that begins.
  if (leader.step === 'dead' || leader.step === 'begin') leader.knowsHistory = false;
  forgetOfFormer(formerLeader);
  forgetOfJob(redis.job, (id) => workers[id].step !== 'idle');
  if (redisCopy) {
    const { data, isSameRun } = redisCopy;
    forgetOfJob(data.job, (id) => isSameRun[id]);
    for (const id of WORKER_IDS) isSameRun[id] = data.job?.lock === RUN_OF[id];
  }
  if (rankOf(state, 0) < rankOf(state, 1)) swapWorkers(state);
  return state;
}

/** The steps of a run after which each field is still asked for. */
const ASKED: Readonly<Record<Exclude<keyof Worker, 'step'>, readonly Worker['step'][]>> = {
  isOfHistory: [
    'read the claim',
    'read until',
    'look for the PV',
    'mark the creation',
    'read the PV to delete',
    'mark the deletion',
  ],
  isFirstRun: ['read the claim', 'read until'],
  sawClaim: [
    'look for the PV',
    'mark the creation',
    'send the creation',
    'await the creation',
    'take the refusal',
    'take the unknown end',
  ],
  until: [
    'read the claim',
    'read until',
    'look for the PV',
    'judge the seen PV',
    'send the creation',
    'await the creation',
    'take the refusal',
    'take the unknown end',
  ],
  doubtLeft: [
    'send the creation',
    'await the creation',
    'write the PV',
    'take the refusal',
    'take the unknown end',
    'finish',
  ],
  beganInDoubt: ['send the creation', 'await the creation', 'take the refusal'],
  sendLeft: ['send the creation', 'send the deletion'],
  writeLeft: [
    'send the creation',
    'await the creation',
    'write the PV',
    'send the deletion',
    'await the deletion',
    'remove the PV',
  ],
  handle: ['write the PV', 'mark the deletion', 'send the deletion'],
  isPvSame: ['mark the deletion', 'send the deletion', 'await the deletion', 'remove the PV'],
};

/** By step: the other fields. */
const FORGOTTEN = Object.fromEntries(
  WORKER_STEPS.map((step) => {
    const fields = Object.entries(ASKED).filter(([, steps]) => !steps.includes(step));
    return [step, Object.fromEntries(fields.map(([field]) => [field, blankOf(field)]))];
  }),
) as Readonly<Record<Worker['step'], Partial<Worker>>>;

function blankOf(field: string): unknown {
  return Object.entries(IDLE_WORKER).find(([name]) => name === field)?.[1];
}

const ADDING: readonly FormerLeader['step'][] = [
  'await the journal write',
  'add the job',
  'add the job again',
  'drop the jobs of before',
];

function forgetOfFormer(former: FormerLeader): void {
  if (!ADDING.includes(former.step)) former.knowsHistory = false;
  if (former.step !== 'remove the entry') former.knowsVersion = false;
  if (former.step !== 'add the job again') former.mustAddAgain = false;
}

function forgetOfJob(job: Job | undefined, isRunning: (id: WorkerId) => boolean): void {
  if (!job) return;
  if (job.kind === 'deletion') {
    job.isNew = false;
    job.until = undefined;
  }
  // The run that held the lock is over.
  for (const id of WORKER_IDS) if (job.lock === RUN_OF[id] && !isRunning(id)) job.lock = 'ended';
}

function rankOf({ workers, redis: { job } }: State, id: WorkerId): number {
  const { step, until = -1, ...worker } = workers[id];
  const numbers = [until + 1, worker.doubtLeft, worker.sendLeft, worker.writeLeft, worker.handle];
  const { isOfHistory, isFirstRun, sawClaim, beganInDoubt, isPvSame } = worker;
  const flags = [isOfHistory, isFirstRun, sawClaim, beganInDoubt, isPvSame];
  let rank = WORKER_STEPS.indexOf(step);
  for (const number of numbers) rank = rank * 8 + number;
  for (const flag of [...flags, job?.lock === RUN_OF[id]]) rank = rank * 2 + Number(flag);
  return rank;
}

function swapWorkers(state: State): void {
  const { workers, redis, redisCopy, calls } = state;
  workers.reverse();
  redisCopy?.isSameRun.reverse();
  for (const job of [redis.job, redisCopy?.data.job]) if (job) job.lock = other(job.lock);
  for (const call of calls) call.caller = other(call.caller);
}

function other<T extends Job['lock'] | 'none'>(run: T): T | 'worker 1' | 'worker 2' {
  if (run === 'worker 1') return 'worker 2';
  return run === 'worker 2' ? 'worker 1' : run;
}
