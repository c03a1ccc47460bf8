/** A random generator with a seed. */
export class Dice {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** At least 0, less than 1 (mulberry32). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** True with the given probability. */
  hits(chance: number): boolean {
    return this.next() < chance;
  }

  /** A random element of a list that is not empty. */
  one<T>(list: readonly T[]): T {
    const found = list[Math.floor(this.next() * list.length)];
    if (found === undefined) throw new Error('a list to choose from is empty');
    return found;
  }

  /** A random element of the list, or undefined.
   * @param chance probability of an element */
  maybe<T>(chance: number, list: readonly T[]): readonly T[] {
    return this.hits(chance) ? [this.one(list)] : [];
  }
}
