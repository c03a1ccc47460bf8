import type { Rules } from './rules.ts';
import { copyOf, type State } from './state.ts';

/** What the search assumes. */
export interface Model {
  readonly rules: Rules;
  /** The driver makes the handle from the volume's name, so a volume that is created again has the
   * handle of the deleted one. */
  readonly isHandleFromName: boolean;
  /** While a creation succeeds in the driver, no other of that name is at work. */
  readonly isDriverSerial: boolean;
}

export interface Step {
  /** In words, for traces. */
  readonly what: string;
  /** A step of progress happens sooner or later. The others may never happen. */
  readonly isProgress: boolean;
  readonly state: State;
}

/** Collects the steps that are possible in one state. */
export class Steps {
  readonly model: Model;
  /** The state before the step. Read only: a change gets a copy. */
  readonly from: State;
  readonly list: Step[] = [];

  constructor(model: Model, from: State) {
    this.model = model;
    this.from = from;
  }

  progress(what: string, change: (state: State) => void): void {
    this.#add(what, true, change);
  }

  /** A fault, or an act of the user. */
  event(what: string, change: (state: State) => void): void {
    this.#add(what, false, change);
  }

  #add(what: string, isProgress: boolean, change: (state: State) => void): void {
    const state = copyOf(this.from);
    change(state);
    this.list.push({ what, isProgress, state });
  }
}
