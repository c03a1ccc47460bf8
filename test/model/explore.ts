/* Breadth-first search through every state that the protocol can reach. Nothing is sampled and no
 * state is taken for another, so a search that ends without a finding proves that there is none
 * within its faults. */
import { findViolation, isSettled, listSteps } from './protocol.ts';
import { ALL_RULES, type Rules } from './rules.ts';
import { type Faults, initialState, pack, STATE_BYTES, type State, unpack } from './state.ts';
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
  return new Explorer(all).run(initialState(faults));
}

class Explorer {
  readonly #model: Model;
  readonly #states = new StateSet();
  /** By number of a state: the state from which the search came to it first. */
  readonly #parents = new Numbers();
  /** The steps of progress: numbers of the states before and after each one. */
  readonly #froms = new Numbers();
  readonly #tos = new Numbers();
  /** Of the state that is looked up: making an array for each takes a quarter of the time. */
  readonly #packed = new Uint8Array(STATE_BYTES);
  #transitions = 0;
  #depth = 0;

  constructor(model: Model) {
    this.#model = model;
  }

  run(initial: State): Exploration {
    this.#states.add(pack(initial));
    this.#parents.push(0);
    const violation = this.#findViolation();
    return this.#explored(violation ?? this.#findStandstill());
  }

  #explored(finding: Finding | undefined): Exploration {
    return {
      states: this.#states.size,
      transitions: this.#transitions,
      depth: this.#depth,
      finding,
    };
  }

  /** P1 and P2. */
  #findViolation(): Finding | undefined {
    let endOfDepth = 0;
    for (let from = 0; from < this.#states.size; from++) {
      if (from === endOfDepth) {
        endOfDepth = this.#states.size;
        this.#depth += 1;
      }
      const finding = this.#visit(from);
      if (finding) return finding;
    }
    return undefined;
  }

  #visit(from: number): Finding | undefined {
    for (const { isProgress, state } of listSteps(this.#model, this.#states.at(from))) {
      this.#transitions += 1;
      const { number, isNew } = this.#states.add(pack(state, this.#packed));
      if (isProgress) {
        this.#froms.push(from);
        this.#tos.push(number);
      }
      if (!isNew) continue;
      this.#parents.push(from);
      const what = findViolation(state);
      if (what !== undefined) return { what, trace: this.#trace(number) };
    }
    return undefined;
  }

  /** P3: goes back from the settled states along all steps of progress. */
  #findStandstill(): Finding | undefined {
    const { size } = this.#states;
    const { starts, sources } = this.#stepsByTarget();
    const canSettle = new Uint8Array(size);
    const queue: number[] = [];
    const note = (number: number) => {
      if (canSettle[number] === 1) return;
      canSettle[number] = 1;
      queue.push(number);
    };
    for (let number = 0; number < size; number++)
      if (isSettled(unpack(this.#states.at(number)))) note(number);
    for (let next = queue.pop(); next !== undefined; next = queue.pop())
      for (let at = starts[next] ?? 0; at < (starts[next + 1] ?? 0); at++) note(sources[at] ?? 0);
    const number = canSettle.indexOf(0);
    if (number === -1) return undefined;
    const { isClaimThere } = unpack(this.#states.at(number));
    const what = isClaimThere
      ? 'P3: the claim can never be served'
      : 'P3: what is left of a claim that is gone can never be removed';
    return { what, trace: this.#trace(number) };
  }

  /** The steps of progress in the order of the states to which they lead: those to state n come
   * from `sources[starts[n]]` up to, not including, `sources[starts[n + 1]]`. */
  #stepsByTarget(): { readonly starts: Int32Array; readonly sources: Int32Array } {
    const starts = new Int32Array(this.#states.size + 1);
    for (let edge = 0; edge < this.#tos.length; edge++) addAt(starts, this.#tos.at(edge) + 1, 1);
    for (let at = 1; at < starts.length; at++) addAt(starts, at, starts[at - 1] ?? 0);
    const nextOf = starts.slice();
    const sources = new Int32Array(this.#tos.length);
    for (let edge = 0; edge < this.#tos.length; edge++) {
      const to = this.#tos.at(edge);
      sources[nextOf[to] ?? 0] = this.#froms.at(edge);
      addAt(nextOf, to, 1);
    }
    return { starts, sources };
  }

  #trace(number: number): string[] {
    const trace: string[] = [];
    for (let to = number; to !== 0; to = this.#parents.at(to)) {
      const target = this.#states.at(to);
      const from = this.#states.at(this.#parents.at(to));
      const step = listSteps(this.#model, from).find(({ state }) => isEqual(pack(state), target));
      trace.unshift(step?.what ?? 'an unknown step');
    }
    return trace;
  }
}

function addAt(numbers: Int32Array, at: number, more: number): void {
  numbers[at] = (numbers[at] ?? 0) + more;
}

function isEqual(a: Uint8Array, b: Uint8Array): boolean {
  for (let at = 0; at < STATE_BYTES; at++) if (a[at] !== b[at]) return false;
  return true;
}

/** Entries in a chunk: a single array for all could not grow without being copied. */
const CHUNK = 1 << 16;

/** A list of numbers of 32 bits that grows. */
class Numbers {
  readonly #chunks: Int32Array[] = [];
  length = 0;

  push(value: number): void {
    if (this.length % CHUNK === 0) this.#chunks.push(new Int32Array(CHUNK));
    const chunk = this.#chunks.at(-1);
    if (chunk) chunk[this.length % CHUNK] = value;
    this.length += 1;
  }

  at(index: number): number {
    return this.#chunks[Math.floor(index / CHUNK)]?.[index % CHUNK] ?? 0;
  }
}

const FREE = -1;

/** The packed states that were reached, numbered in the order in which they were added. The numbers
 * are in a hash table with open addressing. */
class StateSet {
  readonly #chunks: Uint8Array[] = [];
  #table = new Int32Array(1 << 16).fill(FREE);
  size = 0;

  at(number: number): Uint8Array {
    const chunk = this.#chunks[Math.floor(number / CHUNK)];
    if (chunk === undefined) throw new RangeError(`there is no state ${number}`);
    const start = (number % CHUNK) * STATE_BYTES;
    return chunk.subarray(start, start + STATE_BYTES);
  }

  add(packed: Uint8Array): { readonly number: number; readonly isNew: boolean } {
    const place = this.#placeOf(packed);
    const known = this.#table[place] ?? FREE;
    if (known !== FREE) return { number: known, isNew: false };
    const number = this.size;
    if (number % CHUNK === 0) this.#chunks.push(new Uint8Array(CHUNK * STATE_BYTES));
    this.size += 1;
    this.at(number).set(packed);
    this.#table[place] = number;
    if (this.size * 2 > this.#table.length) this.#grow();
    return { number, isNew: true };
  }

  /** Where the state is in the table, or where it belongs. */
  #placeOf(packed: Uint8Array): number {
    const mask = this.#table.length - 1;
    let place = hashOf(packed) & mask;
    for (;;) {
      const number = this.#table[place] ?? FREE;
      if (number === FREE || isEqual(this.at(number), packed)) return place;
      place = (place + 1) & mask;
    }
  }

  #grow(): void {
    this.#table = new Int32Array(this.#table.length * 2).fill(FREE);
    for (let number = 0; number < this.size; number++)
      this.#table[this.#placeOf(this.at(number))] = number;
  }
}

/** FNV-1a, and MurmurHash's last mixing. */
function hashOf(bytes: Uint8Array): number {
  let hash = 2166136261;
  for (let at = 0; at < STATE_BYTES; at++) hash = Math.imul(hash ^ (bytes[at] ?? 0), 16777619);
  hash ^= hash >>> 15;
  hash = Math.imul(hash, 2246822519);
  return (hash ^ (hash >>> 13)) >>> 0;
}
