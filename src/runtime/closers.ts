/** Closes the parts of a process in reverse order of opening. An error of one part does not prevent
 * the others from closing. */
export class Closers {
  readonly #open: { readonly name: string; readonly close: () => unknown }[] = [];

  /** Adds a part that has just been opened.
   * @param name  for the error if closing fails */
  add(name: string, close: () => unknown): void {
    this.#open.push({ name, close });
  }

  /** Closes all parts, each once.
   * @returns the errors, with the original one as `cause` */
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
