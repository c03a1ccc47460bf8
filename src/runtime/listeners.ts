/** Passes each value to all subscribers. */
export class Listeners<T> {
  readonly #listeners: ((value: T) => void)[] = [];

  subscribe(listener: (value: T) => void): void {
    this.#listeners.push(listener);
  }

  notify(value: T): void {
    for (const listener of this.#listeners) listener(value);
  }
}
