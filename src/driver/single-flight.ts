/** How a request names its volume: by name (create) or by handle (delete, modify). */
export interface VolumeKey {
  readonly kind: 'name' | 'handle';
  readonly value: string;
}

/** The permission for a call, or the method of the call that is under way. */
export type Flight =
  | {
      readonly ok: true;
      /** Ends the flight. Further calls do nothing. */
      readonly release: () => void;
    }
  | { readonly ok: false; readonly running: string };

/** Pairs of name and handle that are kept: those of the last hours, in about 2 MB. */
const MAX_LINKS = 10_000;
/** So many of the oldest are forgotten at once. One at a time would cost more than the rest of a
 * link: a Map steps over the entries that were deleted before it finds its first. */
const FORGOTTEN_AT_ONCE = 1_000;

/** Allows one call per volume at a time (invariant 7). A CreateVolume response links the volume's
 * name to its handle, so that a delete by handle also excludes a repeated create by name. Links are
 * kept in memory only: after a restart of the gateway, until the next create, only the lock of the
 * volume's job excludes such pairs. */
export class SingleFlight {
  /** Method of the call under way, by key. */
  readonly #running = new Map<string, string>();
  readonly #handleOfName = new Map<string, string>();
  readonly #nameOfHandle = new Map<string, string>();

  /** Number of keys with a call under way. */
  get size(): number {
    return this.#running.size;
  }

  /** Takes the volume for one call, unless another call has it.
   * @param method  shown to the next caller while this call is under way */
  acquire(key: VolumeKey, method: string): Flight {
    const keys = this.#keysOf(key);
    for (const text of keys) {
      const running = this.#running.get(text);
      if (running !== undefined) return { ok: false, running };
    }
    for (const text of keys) this.#running.set(text, method);
    let isReleased = false;
    const release = (): void => {
      if (isReleased) return;
      isReleased = true;
      for (const text of keys) this.#running.delete(text);
    };
    return { ok: true, release };
  }

  /** Remembers that the driver returned this handle for this name. */
  link(name: string, handle: string): void {
    this.unlink(handle);
    const oldHandle = this.#handleOfName.get(name);
    if (oldHandle !== undefined) this.#nameOfHandle.delete(oldHandle);
    this.#handleOfName.set(name, handle);
    this.#nameOfHandle.set(handle, name);
    if (this.#nameOfHandle.size <= MAX_LINKS) return;
    let left = FORGOTTEN_AT_ONCE;
    for (const oldest of this.#nameOfHandle.keys()) {
      this.unlink(oldest);
      if ((left -= 1) === 0) return;
    }
  }

  /** Forgets a handle that the driver has deleted. */
  unlink(handle: string): void {
    const name = this.#nameOfHandle.get(handle);
    if (name === undefined) return;
    this.#nameOfHandle.delete(handle);
    this.#handleOfName.delete(name);
  }

  #keysOf({ kind, value }: VolumeKey): readonly string[] {
    const other = kind === 'name' ? this.#handleOfName.get(value) : this.#nameOfHandle.get(value);
    const otherKind = kind === 'name' ? 'handle' : 'name';
    return other === undefined
      ? [`${kind}:${value}`]
      : [`${kind}:${value}`, `${otherKind}:${other}`];
  }
}
