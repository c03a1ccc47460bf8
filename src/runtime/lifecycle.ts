/** What was opened, closed again in reverse order; every error is kept and none keeps the others
 * from closing. */
export class Closers {
  readonly #open: { readonly name: string; readonly close: () => unknown }[] = [];

  /** Remembers how to close what was just opened. */
  add(name: string, close: () => unknown): void {
    this.#open.push({ name, close });
  }

  /** Closes the last opened first. */
  async close(): Promise<readonly Error[]> {
    const errors: Error[] = [];
    for (let last = this.#open.pop(); last !== undefined; last = this.#open.pop()) {
      try {
        await last.close();
      } catch (cause) {
        errors.push(new Error(`closing ${last.name} failed`, { cause }));
      }
    }
    return errors;
  }
}
