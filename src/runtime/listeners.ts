/** Passes each value to all subscribers. */
export class Listeners<T> {
  readonly #listeners = new Set<{ readonly call: (value: T) => void }>();

  /** @returns a function that ends the subscription */
  subscribe(listener: (value: T) => void): () => void {
    const entry = { call: listener };
    this.#listeners.add(entry);
    return () => void this.#listeners.delete(entry);
  }

  notify(value: T): void {
    for (const { call } of this.#listeners) call(value);
  }
}
