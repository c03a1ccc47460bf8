/** The versions of those objects of one kind that keys wait for, by "namespace/name". Most objects
 * are not kept, so each is read once when it is followed; from then on the watch says when it
 * changes. */
export class FollowedVersions {
  readonly #read: (key: string) => void;
  readonly #onVersion: (key: string) => void;
  /** '' = it does not exist; undefined: not known yet. */
  readonly #versions = new Map<string, string | undefined>();
  /** Followed before the list under way began, and not listed yet. */
  #unlisted: Set<string> | undefined;

  /** @param read  asked to read an object, and to pass its version to `wasRead`
   * @param onVersion  called when the version of an object is known, or has changed */
  constructor(read: (key: string) => void, onVersion: (key: string) => void) {
    this.#read = read;
    this.#onVersion = onVersion;
  }

  has(key: string): boolean {
    return this.#versions.has(key);
  }

  /** @returns '' for an object that does not exist; undefined for one whose version is not known,
   *   or that is not followed */
  get(key: string): string | undefined {
    return this.#versions.get(key);
  }

  /** Follows these objects and no others.
   * @param known  the version of an object that is kept; not asked while a list is under way, which
   *   may have shown the object's change or deletion already */
  follow(keys: ReadonlySet<string>, known: (key: string) => string | undefined): void {
    for (const key of this.#versions.keys()) if (!keys.has(key)) this.#versions.delete(key);
    for (const key of keys) {
      if (this.#versions.has(key)) continue;
      const version = this.#unlisted === undefined ? known(key) : undefined;
      this.#versions.set(key, version);
      if (version === undefined) this.#read(key);
    }
  }

  /** The watch showed an object; '' = its deletion. */
  changed(key: string, version: string): void {
    if (!this.#versions.has(key)) return;
    this.#unlisted?.delete(key);
    this.#versions.set(key, version);
    this.#onVersion(key);
  }

  /** An object was read. What the watch has shown meanwhile is preferred: it may be newer, and if
   * it is older, the watch brings the rest. */
  wasRead(key: string, version: string): void {
    if (this.#versions.has(key) && this.#versions.get(key) === undefined)
      this.changed(key, version);
  }

  beginList(): void {
    this.#unlisted = new Set(this.#versions.keys());
  }

  endList(): void {
    const gone = this.#unlisted ?? [];
    this.#unlisted = undefined;
    for (const key of gone) this.changed(key, '');
  }
}
