/** Random numbers that a seed repeats. */
export interface Random {
  /** Uniform in [0, 1). */
  next(): number;
  between(min: number, max: number): number;
  /** A whole number from 0 to count - 1. */
  index(count: number): number;
  shuffled<T>(list: readonly T[]): readonly T[];
}

/** Mulberry32: small, fast, and random enough to plan faults. */
export function seededRandom(seed: number): Random {
  let state = Math.imul(seed, 0x9e3779b1) | 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const index = (count: number): number => Math.floor(next() * count);
  return {
    next,
    index,
    between: (min, max) => min + (max - min) * next(),
    shuffled(list) {
      const rest = [...list];
      return list.flatMap(() => rest.splice(index(rest.length), 1));
    },
  };
}
