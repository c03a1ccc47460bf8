/* Breadth-first search through every state that a protocol can reach. Nothing is sampled: when it
 * ends without a finding, there is none within the bounds. */
import {
  initialState,
  isSettled,
  keyOf,
  steps,
  violation,
  type Protocol,
  type State,
} from './protocol.ts';

export interface Finding {
  readonly what: string;
  /** Shortest way there, one line per step. */
  readonly trace: readonly string[];
}

export interface Exploration {
  readonly states: number;
  readonly transitions: number;
  /** Steps to the state that is farthest away. */
  readonly depth: number;
  readonly finding: Finding | undefined;
}

/** Looks at every state in the order of distance, and stops at the first that must not be. If there
 * is none, looks for a state from which nothing can settle any more without another fault or the
 * user's help (I5). */
export function explore(protocol: Protocol, limit = 3_000_000): Exploration {
  const ids = new Map<string, number>();
  const parents = new Numbers();
  const labels: string[] = [];
  const froms = new Numbers();
  const tos = new Numbers();
  const settled: number[] = [];
  let frontier: { readonly id: number; readonly state: State }[] = [];
  let transitions = 0;
  let depth = 0;

  const trace = (id: number): string[] => {
    const lines: string[] = [];
    for (let at = id; at > 0; at = parents.get(at)) lines.unshift(labels[at] ?? '');
    return lines;
  };
  const meet = (
    state: State,
    from: number,
    label: string,
  ): { readonly id: number; readonly isNew: boolean } => {
    const key = keyOf(state);
    const known = ids.get(key);
    if (known !== undefined) return { id: known, isNew: false };
    const id = ids.size;
    if (id >= limit) throw new Error(`more than ${limit} states: lower the bounds`);
    ids.set(key, id);
    parents.push(from);
    labels.push(label);
    if (isSettled(protocol, state)) settled.push(id);
    return { id, isNew: true };
  };

  const initial = initialState(protocol.bounds);
  frontier.push({ id: meet(initial, 0, 'start').id, state: initial });
  while (frontier.length > 0) {
    const following: typeof frontier = [];
    for (const { id, state } of frontier) {
      for (const { label, helps, next } of steps(protocol, state)) {
        transitions += 1;
        const met = meet(next, id, label);
        if (helps) {
          froms.push(id);
          tos.push(met.id);
        }
        if (!met.isNew) continue;
        const what = violation(protocol, next);
        if (what !== undefined)
          return {
            states: ids.size,
            transitions,
            depth: depth + 1,
            finding: { what, trace: trace(met.id) },
          };
        following.push({ id: met.id, state: next });
      }
    }
    frontier = following;
    if (frontier.length > 0) depth += 1;
  }
  const stuck = firstStuck(ids.size, settled, froms, tos);
  const finding =
    stuck === undefined
      ? undefined
      : { what: 'nothing settles any more from here (I5)', trace: trace(stuck) };
  return { states: ids.size, transitions, depth, finding };
}

/** The nearest state from which no helpful step leads to a settled one. */
function firstStuck(
  states: number,
  settled: readonly number[],
  froms: Numbers,
  tos: Numbers,
): number | undefined {
  const starts = new Int32Array(states + 1);
  for (let edge = 0; edge < tos.length; edge += 1)
    starts[tos.get(edge) + 1] = (starts[tos.get(edge) + 1] ?? 0) + 1;
  for (let at = 0; at < states; at += 1) starts[at + 1] = (starts[at + 1] ?? 0) + (starts[at] ?? 0);
  const sources = new Int32Array(tos.length);
  const filled = starts.slice();
  for (let edge = 0; edge < tos.length; edge += 1) {
    const to = tos.get(edge);
    const place = filled[to] ?? 0;
    sources[place] = froms.get(edge);
    filled[to] = place + 1;
  }
  const mayEnd = new Uint8Array(states);
  const open = [...settled];
  for (const id of open) mayEnd[id] = 1;
  for (let to = open.pop(); to !== undefined; to = open.pop()) {
    for (let at = starts[to] ?? 0; at < (starts[to + 1] ?? 0); at += 1) {
      const from = sources[at] ?? 0;
      if (mayEnd[from] === 1) continue;
      mayEnd[from] = 1;
      open.push(from);
    }
  }
  const stuck = mayEnd.indexOf(0);
  return stuck < 0 ? undefined : stuck;
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
