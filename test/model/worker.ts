/* The workers: runs that create (R1 to R6) and delete (D1), with their marks (M1 to M4). */
import { stalledStep } from './redis.ts';
import {
  afterClaimRule,
  finishRule,
  isInDoubt,
  markRule,
  refusedRule,
  type Rules,
  seenPvRule,
  TICKS,
  unknownEndRule,
  type Until,
  writtenRule,
} from './rules.ts';
import { becomeIdle, crash, finishJob, giveBack, hasLock, unmark } from './run.ts';
import {
  type Call,
  type Handle,
  MAX_CALLS,
  NO_HANDLE,
  RUN_OF,
  type State,
  type Worker,
  type WorkerId,
  WORKER_IDS,
} from './state.ts';
import type { Steps } from './steps.ts';

export function workerSteps(steps: Steps): void {
  for (const id of WORKER_IDS) {
    faultSteps(steps, id);
    const run = new RunSteps(steps, id);
    RUN_STEPS[run.worker.step](run);
  }
}

function faultSteps(steps: Steps, id: WorkerId): void {
  const { from } = steps;
  const isIdle = from.workers[id].step === 'idle';
  if (!isIdle && from.faults.crashes > 0)
    steps.event(`${RUN_OF[id]} crashes`, (state) => {
      state.faults.crashes -= 1;
      crash(state, id);
    });
  if (!hasLock(from, id)) return;
  if (isIdle) stalledStep(steps);
  else if (from.faults.lostLocks > 0)
    steps.event(`${RUN_OF[id]} loses the lock of its job`, (state) => {
      state.faults.lostLocks -= 1;
      const { job } = state.redis;
      if (!job) return;
      job.phase = 'waiting';
      job.lock = 'none';
    });
}

/** Collects the steps of one worker. */
class RunSteps {
  readonly id: WorkerId;
  readonly from: State;
  readonly worker: Worker;
  readonly rules: Rules;
  readonly #steps: Steps;

  constructor(steps: Steps, id: WorkerId) {
    this.id = id;
    this.from = steps.from;
    this.worker = steps.from.workers[id];
    this.rules = steps.model.rules;
    this.#steps = steps;
  }

  /** @param what  what the worker does, without its name */
  add(what: string, change: (state: State, id: WorkerId, worker: Worker) => void): void {
    const { id } = this;
    this.#steps.progress(`${RUN_OF[id]} ${what}`, (state) => change(state, id, state.workers[id]));
  }

  /** The worker does this and nothing else, and its run goes on with the step `next`. */
  goOn(what: string, next: Worker['step']): void {
    this.add(what, (_state, _id, worker) => {
      worker.step = next;
    });
  }
}

/** What a run may do, by its next step. */
const RUN_STEPS: Readonly<Record<Worker['step'], (run: RunSteps) => void>> = {
  idle: takeSteps,
  'read the claim': readClaimStep,
  'read until': readUntilStep,
  'look for the PV': lookStep,
  'judge the seen PV': judgeStep,
  'mark the creation': (run) =>
    run.add('marks the creation', (state, id) => markCreation(state, id, run.rules)),
  'send the creation': sendCreationSteps,
  // The driver goes on.
  'await the creation': () => undefined,
  'write the PV': writeStep,
  'take the refusal': refusalStep,
  'take the unknown end': unknownEndStep,
  finish: finishStep,
  'read the PV to delete': readPvStep,
  'mark the deletion': markDeletionStep,
  'send the deletion': sendDeletionStep,
  'await the deletion': () => undefined,
  'remove the PV': removePvStep,
};

function takeSteps(run: RunSteps): void {
  const { job } = run.from.redis;
  if (job?.phase !== 'waiting') return;
  if (job.kind === 'deletion') {
    run.add('takes the deletion', (state, id, worker) => {
      takeLock(state, id, worker);
      worker.step = 'read the PV to delete';
    });
    return;
  }
  run.add('takes the job', takeCreation);
  if (job.isNew && !run.from.isClaimThere)
    run.add('takes the job with a copy of the claim (R1)', (state, id, worker) => {
      takeCreation(state, id, worker);
      worker.step = stepAfterClaim(worker, false);
    });
}

function takeLock({ redis: { job } }: State, id: WorkerId, worker: Worker): void {
  if (!job) return;
  job.phase = 'active';
  job.lock = RUN_OF[id];
  worker.isOfHistory = job.isOfHistory;
  worker.isFirstRun = job.isNew;
  job.isNew = false;
}

function takeCreation(state: State, id: WorkerId, worker: Worker): void {
  takeLock(state, id, worker);
  const { job } = state.redis;
  if (!job) return;
  worker.until = job.until;
  worker.sawClaim = true;
  worker.step = 'read the claim';
}

/** R1. */
function readClaimStep(run: RunSteps): void {
  const { isClaimThere } = run.from;
  run.add(`reads the claim: ${isClaimThere ? 'there' : 'gone'}`, (_state, _id, worker) => {
    worker.sawClaim = isClaimThere;
    worker.step = isClaimThere ? stepAfterClaim(worker, false) : 'read until';
  });
}

/** R1, for a claim that is gone. */
function readUntilStep(run: RunSteps): void {
  const was = run.worker.until === undefined ? 'never' : 'already';
  run.goOn(`reads that a call was ${was} begun`, stepAfterClaim(run.worker, true));
}

/** R1 and R2. */
function stepAfterClaim({ isFirstRun, until }: Worker, isGone: boolean): Worker['step'] {
  switch (afterClaimRule(isGone, isFirstRun, until)) {
    case 'finish':
      return 'finish';
    case 'look for the PV':
      return 'look for the PV';
    case 'call the driver':
      return 'mark the creation';
  }
}

/** R2. */
function lookStep(run: RunSteps): void {
  if (run.from.pv.phase === 'none')
    return run.goOn('looks for the PV: there is none', 'mark the creation');
  const { finishAwaitsDoubt } = run.rules;
  run.goOn('looks for the PV: it is there', finishAwaitsDoubt ? 'judge the seen PV' : 'finish');
}

/** R2. */
function judgeStep(run: RunSteps): void {
  if (seenPvRule(run.worker.until, run.rules) === 'finish')
    return run.goOn('sees that the PV is not in doubt', 'finish');
  run.add('gives the job back until the doubt is over', giveBack);
}

/** M1. */
function markCreation(state: State, id: WorkerId, rules: Rules): void {
  const before = mark(state, id, rules);
  if (before === 'ended') return;
  const worker = state.workers[id];
  worker.until = before.until;
  worker.doubtLeft = before.until ?? 0;
  worker.beganInDoubt = isInDoubt(before.until);
  worker.step = 'send the creation';
}

/** M1 and M2.
 * @returns `until` as it was, or that the run has ended */
function mark(state: State, id: WorkerId, rules: Rules): 'ended' | { readonly until: Until } {
  const { job } = state.redis;
  const worker = state.workers[id];
  const view = { isOfHistory: worker.isOfHistory, hasLock: hasLock(state, id) };
  const answer = markRule(job, view, rules);
  switch (answer.kind) {
    case 'other-history':
      giveBack(state, id);
      return 'ended';
    case 'lock-lost':
      becomeIdle(state, id);
      return 'ended';
    case 'marked':
      if (job) job.until = answer.until;
      worker.sendLeft = TICKS.grace;
      worker.writeLeft = TICKS.write;
      return { until: answer.before };
  }
}

/** M2 and M3. */
function sendCreationSteps(run: RunSteps): void {
  const { from, worker, rules } = run;
  const isInTime = worker.sendLeft > 0 || !rules.callIsSentInGrace;
  if (isInTime && from.calls.length < MAX_CALLS)
    run.add(`sends CreateVolume${inDoubt(worker)}`, ({ calls }, id, sender) => {
      calls.push(newCall('creation', id, NO_HANDLE));
      sender.step = 'await the creation';
    });
  run.add('sends nothing: too late, or not forwarded', (state, id) => {
    unmark(state, id);
    giveBack(state, id);
  });
}

function inDoubt({ beganInDoubt }: Worker): string {
  return beganInDoubt ? ' in doubt' : '';
}

function newCall(kind: Call['kind'], id: WorkerId, handle: Handle): Call {
  return { kind, caller: RUN_OF[id], left: TICKS.call, handle };
}

/** R4 and M2. */
function writeStep(run: RunSteps): void {
  const { from, worker, rules } = run;
  if (rules.pvIsWrittenInTime && worker.writeLeft === 0)
    run.add('is too late to write the PV', giveBack);
  else if (from.pv.phase === 'none')
    run.add('writes the PV', (state, _id, writer) => {
      state.pv = { phase: 'written', handle: writer.handle };
      writer.step = 'finish';
    });
  else if (from.pv.handle === worker.handle) run.goOn('finds the PV written', 'finish');
  else run.add('finds a PV with another handle', giveBack);
}

/** R5. */
function refusalStep(run: RunSteps): void {
  const { sawClaim, beganInDoubt } = run.worker;
  const what = `takes the refusal${inDoubt(run.worker)}`;
  if (refusedRule(!sawClaim, beganInDoubt, run.rules) === 'finish') return run.goOn(what, 'finish');
  run.add(what, (state, id) => {
    unmark(state, id);
    giveBack(state, id);
  });
}

/** R6. */
function unknownEndStep(run: RunSteps): void {
  const isOver = unknownEndRule(!run.worker.sawClaim, run.rules) === 'finish';
  run.add('takes the unknown end', (state, id, worker) => {
    if (!run.rules.unknownEndKeepsUntil) unmark(state, id);
    if (isOver) worker.step = 'finish';
    else giveBack(state, id);
  });
}

/** M4. */
function finishStep(run: RunSteps): void {
  const { worker, rules } = run;
  if (writtenRule(worker.doubtLeft, rules) === 'later')
    return run.add('gives the job back until the doubt is over', giveBack);
  run.add('finishes the job', (state, id) => {
    const isCreation = state.redis.job?.kind === 'creation';
    finishJob(state, id, isCreation && finishRule(hasLock(state, id), rules) === 'finished');
  });
}

/** D1. */
function readPvStep(run: RunSteps): void {
  if (run.from.pv.phase !== 'released')
    return run.add('reads the PV: nothing to delete', endDeletion);
  run.add('reads the PV: Released', ({ pv }, _id, worker) => {
    worker.handle = pv.handle;
    worker.isPvSame = true;
    worker.step = 'mark the deletion';
  });
}

function endDeletion(state: State, id: WorkerId): void {
  finishJob(state, id);
}

/** M1. */
function markDeletionStep(run: RunSteps): void {
  run.add('marks the deletion', (state, id, worker) => {
    if (mark(state, id, run.rules) !== 'ended') worker.step = 'send the deletion';
  });
}

/** M2. */
function sendDeletionStep(run: RunSteps): void {
  if (run.worker.sendLeft === 0) return run.add('is too late to delete', giveBack);
  if (run.from.calls.length === MAX_CALLS) return;
  run.add('sends DeleteVolume', ({ calls }, id, worker) => {
    calls.push(newCall('deletion', id, worker.handle));
    worker.step = 'await the deletion';
  });
}

/** M2 and D1. */
function removePvStep(run: RunSteps): void {
  if (run.worker.writeLeft === 0) return run.add('is too late to remove the PV', giveBack);
  run.add('removes the PV', (state, id) => removePv(state, id, run.rules));
}

function removePv(state: State, id: WorkerId, rules: Rules): void {
  if (state.workers[id].isPvSame || !rules.pvIsRemovedByUid) {
    state.pv = { phase: 'none', handle: NO_HANDLE };
    for (const worker of state.workers) worker.isPvSame = false;
  }
  finishJob(state, id);
}
