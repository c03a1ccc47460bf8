/* Breadth-first search through every state that the protocol can reach. Nothing is sampled. Two
 * states count as one only if the same can happen from both. So a search that ends without a
 * finding proves that its faults do no harm. */
import { canonical } from './canonical.ts';
import { findViolation, isSettled, listSteps } from './protocol.ts';
import { ALL_RULES, type Rules } from './rules.ts';
import { copyOf, type Faults, initialState, keyOf, type State } from './state.ts';
import type { Model } from './steps.ts';

/** What to search. */
export interface Search extends Partial<Omit<Model, 'rules'>> {
  readonly faults?: Partial<Faults>;
  /** A rule that is switched off. */
  readonly without?: keyof Rules;
}

interface Finding {
  readonly what: string;
  /** The shortest way to it, one line a step. */
  readonly trace: readonly string[];
}

export interface Exploration {
  readonly states: number;
  readonly transitions: number;
  /** Number of steps to the farthest state. */
  readonly depth: number;
  readonly finding: Finding | undefined;
}

/** Checks P1 and P2 in every state, the nearest first, and stops at the first violation. Without
 * one it looks for a state from which the steps of progress can't lead to a settled one (P3). */
export function explore({ faults = {}, without, ...model }: Search): Exploration {
  const rules = without === undefined ? ALL_RULES : { ...ALL_RULES, [without]: false };
  const all = { isHandleFromName: false, isDriverSerial: false, ...model, rules };
  return new Explorer(all, initialState(faults)).run();
}

class Explorer {
  readonly #model: Model;
  readonly #initial: State;
  /** By key, in the order in which the search came to them. */
  readonly #numbers = new Map<string, number>();
  /** By number of a state: the state from which the search came to it first. */
  readonly #parents: number[] = [];
  readonly #settled: number[] = [];
  /** The steps of progress: numbers of the states before and after each one. */
  readonly #froms: number[] = [];
  readonly #tos: number[] = [];
  #transitions = 0;
  #depth = 0;

  constructor(model: Model, initial: State) {
    this.#model = model;
    this.#initial = initial;
  }

  run(): Exploration {
    const finding = this.#findViolation() ?? this.#findStandstill();
    const states = this.#numbers.size;
    return { states, transitions: this.#transitions, depth: this.#depth, finding };
  }

  /** P1 and P2. */
  #findViolation(): Finding | undefined {
    let next: State[] = [];
    this.#add(canonical(copyOf(this.#initial)), 0, next);
    for (let from = 0; next.length > 0; this.#depth += 1) {
      const states = next;
      next = [];
      for (const state of states) {
        const finding = this.#visit(state, from, next);
        if (finding) return finding;
        from += 1;
      }
    }
    return undefined;
  }

  /** @param next  the states that are new are added to it */
  #visit(state: State, from: number, next: State[]): Finding | undefined {
    for (const { isProgress, state: after } of listSteps(this.#model, state)) {
      this.#transitions += 1;
      const what = findViolation(after);
      const to = this.#add(canonical(after), from, next);
      if (what !== undefined) return { what, trace: this.#trace(to) };
      if (!isProgress) continue;
      this.#froms.push(from);
      this.#tos.push(to);
    }
    return undefined;
  }

  /** @returns the state's number */
  #add(state: State, from: number, next: State[]): number {
    const key = keyOf(state);
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    const number = this.#numbers.size;
    this.#numbers.set(key, number);
    this.#parents.push(from);
    if (isSettled(state)) this.#settled.push(number);
    next.push(state);
    return number;
  }

  /** P3: goes back from the settled states along all steps of progress. */
  #findStandstill(): Finding | undefined {
    const { starts, sources } = this.#stepsByTarget();
    const canSettle = new Uint8Array(this.#numbers.size);
    const queue = this.#settled;
    for (const number of queue) canSettle[number] = 1;
    for (let next = queue.pop(); next !== undefined; next = queue.pop())
      for (const source of sources.subarray(starts[next], starts[next + 1])) {
        if (canSettle[source] === 1) continue;
        canSettle[source] = 1;
        queue.push(source);
      }
    const number = canSettle.indexOf(0);
    return number === -1
      ? undefined
      : { what: 'P3: what is left can never be settled', trace: this.#trace(number) };
  }

  /** The steps of progress in the order of the states to which they lead: those to state n come
   * from `sources[starts[n]]` up to, not including, `sources[starts[n + 1]]`. */
  #stepsByTarget(): { readonly starts: Int32Array; readonly sources: Int32Array } {
    const starts = new Int32Array(this.#numbers.size + 1);
    for (const to of this.#tos) addAt(starts, to + 1, 1);
    for (let at = 1; at < starts.length; at++) addAt(starts, at, starts[at - 1] ?? 0);
    const nextOf = starts.slice();
    const sources = new Int32Array(this.#tos.length);
    for (const [edge, to] of this.#tos.entries()) {
      sources[nextOf[to] ?? 0] = this.#froms[edge] ?? 0;
      addAt(nextOf, to, 1);
    }
    return { starts, sources };
  }

  /** The steps to a state, in which each worker keeps its name. */
  #trace(number: number): string[] {
    const keys = [...this.#numbers.keys()];
    const way: number[] = [];
    for (let at = number; at !== 0; at = this.#parents[at] ?? 0) way.unshift(at);
    let state = this.#initial;
    return way.map((to) => {
      const step = listSteps(this.#model, state).find(
        (each) => keyOf(canonical(copyOf(each.state))) === keys[to],
      );
      if (step === undefined) return 'an unknown step';
      ({ state } = step);
      return step.what;
    });
  }
}

function addAt(numbers: Int32Array, at: number, more: number): void {
  numbers[at] = (numbers[at] ?? 0) + more;
}
