/* The driver. It is idempotent by name, a call is at work until settle time after its deadline at
 * most, and a final refusal leaves nothing behind. */
import { abandonCall, giveBack, unmark } from './run.ts';
import {
  type Call,
  type Handle,
  NO_HANDLE,
  RUN_OF,
  type State,
  type WorkerId,
  WORKER_IDS,
  WRONGLY_DELETED,
} from './state.ts';
import type { Model, Steps } from './steps.ts';

export function driverSteps(steps: Steps): void {
  for (const [at, call] of steps.from.calls.entries()) {
    const id = WORKER_IDS.find((worker) => call.caller === RUN_OF[worker]);
    if (id === undefined) abandonedSteps(steps, at, call.kind);
    else if (call.kind === 'creation') creationSteps(steps, at, id);
    else deletionSteps(steps, at, id);
  }
}

function abandonedSteps(steps: Steps, at: number, kind: Call['kind']): void {
  steps.progress(`an abandoned ${kind} succeeds`, (state) => {
    const [call] = state.calls.splice(at, 1);
    if (call?.kind === 'creation') create(state, steps.model);
    if (call?.kind === 'deletion') destroy(state, call.handle);
  });
  steps.progress(`an abandoned ${kind} ends without effect`, (state) => {
    state.calls.splice(at, 1);
  });
}

function creationSteps(steps: Steps, at: number, id: WorkerId): void {
  const { model, from } = steps;
  const name = RUN_OF[id];
  steps.progress(`the driver answers ${name}: created`, (state) => {
    state.calls.splice(at, 1);
    state.workers[id].handle = create(state, model);
    state.workers[id].step = 'write the PV';
    if (!model.rules.successKeepsUntil) unmark(state, id);
  });
  if (from.volume === NO_HANDLE)
    steps.progress(`the driver refuses the creation of ${name} for good`, (state) => {
      state.calls.splice(at, 1);
      state.workers[id].step = 'take the refusal';
    });
  if (from.faults.lostAnswers === 0) return;
  steps.event(`the driver creates the volume for ${name}, the answer is lost`, (state) => {
    state.faults.lostAnswers -= 1;
    state.calls.splice(at, 1);
    create(state, model);
    state.workers[id].step = 'take the unknown end';
  });
  steps.event(`the creation of ${name} is cut, and stays at work`, (state) => {
    state.faults.lostAnswers -= 1;
    abandonCall(state, id);
    state.workers[id].step = 'take the unknown end';
  });
}

function deletionSteps(steps: Steps, at: number, id: WorkerId): void {
  const name = RUN_OF[id];
  steps.progress(`the driver answers ${name}: deleted`, (state) => {
    const [call] = state.calls.splice(at, 1);
    if (call) destroy(state, call.handle);
    state.workers[id].step = 'remove the PV';
  });
  if (steps.from.faults.lostAnswers === 0) return;
  steps.event(`the deletion of ${name} is cut, and stays at work`, (state) => {
    state.faults.lostAnswers -= 1;
    abandonCall(state, id);
    giveBack(state, id);
  });
}

/** A creation, whose call has left the list, succeeds. */
function create(state: State, { isDriverSerial, isHandleFromName }: Model): Handle {
  if (state.volume === NO_HANDLE) state.volume = isHandleFromName ? 1 : unusedHandle(state);
  if (isDriverSerial)
    state.calls = state.calls.filter((call) => call.kind !== 'creation' || call.caller !== 'none');
  return state.volume;
}

/** The lowest handle that nothing names, so that equal situations have equal handles. */
function unusedHandle({ volume, pv, workers, calls }: State): Handle {
  const used = [volume, pv.handle, ...workers.map((w) => w.handle), ...calls.map((c) => c.handle)];
  let handle = 1;
  while (used.includes(handle)) handle += 1;
  return handle;
}

function destroy(state: State, handle: Handle): void {
  const { volume, pv } = state;
  if (volume !== handle) return;
  const isInUse = pv.phase === 'bound' && pv.handle === volume;
  state.volume = isInUse ? WRONGLY_DELETED : NO_HANDLE;
}
