/** What a call touches: a volume's name (create) or its handle (delete, modify). */
export interface VolumeKey {
  readonly kind: 'name' | 'handle';
  readonly value: string;
}

/** Names and handles remembered as one volume: enough for hours of work, and about 2 MB. */
const MAX_TIES = 10_000;

/** One call at a time per volume, whatever it is called by. A driver's answer to a create ties name
 * and handle, so that a delete by handle also waits out a repeated create by name. The ties are a
 * memory of this process; after a restart the volume record's fence stands alone until the next
 * create. */
export class SingleFlight {
  readonly #running = new Map<string, string>();
  readonly #handleOfName = new Map<string, string>();
  readonly #nameOfHandle = new Map<string, string>();

  /** Calls under way. */
  get size(): number {
    return this.#running.size;
  }

  /** Takes the volume, or says which call has it.
   * @param what  the caller's method, for the next one's refusal */
  acquire(
    key: VolumeKey,
    what: string,
  ):
    | { readonly ok: true; readonly ticket: Ticket }
    | { readonly ok: false; readonly running: string } {
    const keys = this.#allKeys(key);
    const running = keys
      .map((text) => this.#running.get(text))
      .find((found) => found !== undefined);
    if (running !== undefined) return { ok: false, running };
    for (const text of keys) this.#running.set(text, what);
    return {
      ok: true,
      ticket: new Ticket(() => keys.forEach((text) => this.#running.delete(text))),
    };
  }

  /** The driver said that this name is this handle. */
  link(name: string, handle: string): void {
    this.unlink(handle);
    const oldHandle = this.#handleOfName.get(name);
    if (oldHandle !== undefined) this.#nameOfHandle.delete(oldHandle);
    this.#handleOfName.set(name, handle);
    this.#nameOfHandle.set(handle, name);
    if (this.#nameOfHandle.size > MAX_TIES) {
      const oldest = this.#nameOfHandle.keys().next();
      if (oldest.done !== true) this.unlink(oldest.value);
    }
  }

  /** The driver said that this handle is gone. */
  unlink(handle: string): void {
    const name = this.#nameOfHandle.get(handle);
    if (name === undefined) return;
    this.#nameOfHandle.delete(handle);
    this.#handleOfName.delete(name);
  }

  #allKeys({ kind, value }: VolumeKey): readonly string[] {
    const other = kind === 'name' ? this.#handleOfName.get(value) : this.#nameOfHandle.get(value);
    const otherKind = kind === 'name' ? 'handle' : 'name';
    return other === undefined
      ? [`${kind}:${value}`]
      : [`${kind}:${value}`, `${otherKind}:${other}`];
  }
}

/** The right to have a call under way for a volume. */
export class Ticket {
  readonly #release: () => void;
  #released = false;

  constructor(release: () => void) {
    this.#release = release;
  }

  /** Gives the volume free; a second time does nothing. */
  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#release();
  }
}
