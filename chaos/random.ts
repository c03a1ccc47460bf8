import { seeded } from '../test/harness/seeded.ts';

/** Random numbers that are the same for the same seed. */
export interface Random {
  /** Uniform in [0, 1). */
  next(): number;
  between(min: number, max: number): number;
  /** A whole number from 0 to count - 1. */
  index(count: number): number;
  shuffled<T>(list: readonly T[]): readonly T[];
}

export function seededRandom(seed: number): Random {
  const next = seeded(Math.imul(seed, 0x9e3779b1));
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
