/* Breadth-first search through every state that a protocol can reach. Nothing is sampled: a search
 * that ends without a finding proves that there is none within the bounds. */
import {
  findViolation,
  initialState,
  isSettled,
  keyOf,
  listSteps,
  type Protocol,
  type State,
} from './protocol.ts';

interface Finding {
  readonly what: string;
  /** The shortest way to it, one line per step. */
  readonly trace: readonly string[];
}

export interface Exploration {
  readonly states: number;
  readonly transitions: number;
  /** Number of steps to the farthest state. */
  readonly depth: number;
  readonly finding: Finding | undefined;
}

/** Checks every state, the nearest first, and stops at the first violation. If there is none, finds
 * a state from which nothing can settle any more without a fault or an action of the user (I5).
 * @param maxDepth  checks only the states that are at most so many steps away, and not I5 */
export function explore(protocol: Protocol, maxDepth = Infinity): Exploration {
  return new Search(protocol, maxDepth).run();
}

const MAX_STATES = 15_000_000;

interface ReachedState {
  readonly id: number;
  readonly state: State;
}

class Search {
  readonly #protocol: Protocol;
  readonly #maxDepth: number;
  readonly #ids = new Map<string, number>();
  /** By id: the state before, and the step from there. */
  readonly #parents = new Numbers();
  readonly #labels: string[] = [];
  /** The steps of progress: ids of the states before and after each one. */
  readonly #froms = new Numbers();
  readonly #tos = new Numbers();
  readonly #settled: number[] = [];
  #transitions = 0;

  constructor(protocol: Protocol, maxDepth: number) {
    this.#protocol = protocol;
    this.#maxDepth = maxDepth;
  }

  run(): Exploration {
    const initial = initialState(this.#protocol.bounds);
    let frontier: readonly ReachedState[] = [
      { id: this.#addState(initial, 0, 'start').id, state: initial },
    ];
    for (let depth = 0; ; depth += 1) {
      const following: ReachedState[] = [];
      for (const reached of frontier) {
        const finding = this.#follow(reached, following);
        if (finding !== undefined) return this.#result(depth + 1, finding);
      }
      if (following.length === 0) return this.#result(depth, this.#findStuck());
      if (depth + 1 === this.#maxDepth) return this.#result(this.#maxDepth, undefined);
      frontier = following;
    }
  }

  /** Takes every step from a state, and adds the new states to `following`. */
  #follow({ id, state }: ReachedState, following: ReachedState[]): Finding | undefined {
    for (const { label, isProgress, next } of listSteps(this.#protocol, state)) {
      this.#transitions += 1;
      const target = this.#addState(next, id, label);
      if (isProgress) {
        this.#froms.push(id);
        this.#tos.push(target.id);
      }
      if (!target.isNew) continue;
      const what = findViolation(this.#protocol, next);
      if (what !== undefined) return { what, trace: this.#trace(target.id) };
      following.push({ id: target.id, state: next });
    }
    return undefined;
  }

  #addState(
    state: State,
    from: number,
    label: string,
  ): { readonly id: number; readonly isNew: boolean } {
    const key = keyOf(state);
    const known = this.#ids.get(key);
    if (known !== undefined) return { id: known, isNew: false };
    const id = this.#ids.size;
    if (id >= MAX_STATES) throw new Error(`more than ${MAX_STATES} states: lower the bounds`);
    this.#ids.set(key, id);
    this.#parents.push(from);
    this.#labels.push(label);
    if (isSettled(this.#protocol, state)) this.#settled.push(id);
    return { id, isNew: true };
  }

  #trace(id: number): string[] {
    const lines: string[] = [];
    for (let at = id; at > 0; at = this.#parents.get(at)) lines.unshift(this.#labels[at] ?? '');
    return lines;
  }

  #result(depth: number, finding: Finding | undefined): Exploration {
    return { states: this.#ids.size, transitions: this.#transitions, depth, finding };
  }

  /** The nearest state from which no steps of progress lead to a settled one. */
  #findStuck(): Finding | undefined {
    const { starts, sources } = this.#stepsInto();
    const canSettle = new Uint8Array(this.#ids.size);
    const open = [...this.#settled];
    for (const id of open) canSettle[id] = 1;
    for (let to = open.pop(); to !== undefined; to = open.pop()) {
      for (const from of sources.subarray(starts[to], starts[to + 1])) {
        if (canSettle[from] === 1) continue;
        canSettle[from] = 1;
        open.push(from);
      }
    }
    const stuck = canSettle.indexOf(0);
    if (stuck < 0) return undefined;
    return { what: 'nothing settles any more from here (I5)', trace: this.#trace(stuck) };
  }

  /** The steps of progress by their target: those into state `i` come from the states
   * sources[starts[i]] up to sources[starts[i + 1]]. */
  #stepsInto(): { readonly starts: Int32Array; readonly sources: Int32Array } {
    const starts = new Int32Array(this.#ids.size + 1);
    for (let step = 0; step < this.#tos.length; step += 1)
      increment(starts, this.#tos.get(step) + 1);
    for (let at = 1; at < starts.length; at += 1)
      starts[at] = read(starts, at) + read(starts, at - 1);
    const sources = new Int32Array(this.#tos.length);
    const next = starts.slice();
    for (let step = 0; step < this.#tos.length; step += 1) {
      const to = this.#tos.get(step);
      sources[read(next, to)] = this.#froms.get(step);
      increment(next, to);
    }
    return { starts, sources };
  }
}

function read(values: Int32Array, at: number): number {
  return values[at] ?? 0;
}

function increment(values: Int32Array, at: number): void {
  values[at] = read(values, at) + 1;
}

/** A list of small integers that stays compact with millions of them. */
class Numbers {
  #values = new Int32Array(1024);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  push(value: number): void {
    if (this.#length === this.#values.length) {
      const larger = new Int32Array(this.#length * 2);
      larger.set(this.#values);
      this.#values = larger;
    }
    this.#values[this.#length] = value;
    this.#length += 1;
  }

  get(at: number): number {
    return this.#values[at] ?? 0;
  }
}
