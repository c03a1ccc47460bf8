import { randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

/** What every kind of thing in a store has. */
export interface Stored {
  readonly handle: string;
  /** Whoever asks for the same name again gets the same thing. */
  readonly name: string;
  readonly capacityBytes: bigint;
}

/** How one kind of thing is kept. */
export interface StoreKind<T extends Stored> {
  /** What its handles begin with; directories that begin otherwise are none of this store's
   * business. */
  readonly prefix: string;
  readonly metadataFile: string;
  /** @returns undefined: the metadata does not describe such a thing */
  readonly parse: (raw: Readonly<Record<string, unknown>>, handle: string) => T | undefined;
}

/** Things as directories of a folder, each with a metadata file, so that a restart finds them
 * again. Calls are synchronous: nothing can come between looking and making, and at this size it
 * costs less than the way through the thread pool. */
export class DirectoryStore<T extends Stored> {
  readonly #folder: string;
  readonly #kind: StoreKind<T>;
  readonly #byHandle = new Map<string, T>();
  readonly #byName = new Map<string, T>();
  #usedBytes = 0n;

  /** Opens the folder, makes it if need be, and reads what is there. A directory without readable
   * metadata was never answered for: it goes. */
  constructor(folder: string, kind: StoreKind<T>) {
    this.#folder = resolve(folder);
    this.#kind = kind;
    mkdirSync(this.#folder, { recursive: true });
    for (const entry of readdirSync(this.#folder, { withFileTypes: true })) {
      if (!entry.isDirectory() || !entry.name.startsWith(kind.prefix)) continue;
      const item = this.#read(entry.name);
      if (item === undefined) rmSync(this.directory(entry.name), { recursive: true, force: true });
      else this.#remember(item);
    }
  }

  /** Capacity of all together. */
  get usedBytes(): bigint {
    return this.#usedBytes;
  }

  /** All, by handle. */
  list(): readonly T[] {
    return [...this.#byHandle.values()].sort((a, b) => (a.handle < b.handle ? -1 : 1));
  }

  byHandle(handle: string): T | undefined {
    return this.#byHandle.get(handle);
  }

  byName(name: string): T | undefined {
    return this.#byName.get(name);
  }

  /** Absolute path of one thing's directory; what is in it beside the metadata is its contents. */
  directory(handle: string): string {
    return join(this.#folder, handle);
  }

  /** Makes a thing under a fresh handle; the caller has seen that the name is free. What `fill`
   * throws leaves nothing behind. */
  create(item: Omit<T, 'handle'>, fill: (directory: string) => void): T {
    const handle = `${this.#kind.prefix}${randomUUID()}`;
    const directory = this.directory(handle);
    mkdirSync(directory);
    // A handle and the rest of a T are a T, which the compiler does not see for a generic one.
    const stored = { handle, ...item } as unknown as T;
    try {
      fill(directory);
      // Last: what has metadata is whole.
      this.#write(stored);
    } catch (error) {
      rmSync(directory, { recursive: true, force: true });
      throw error;
    }
    this.#remember(stored);
    return stored;
  }

  /** Puts other metadata in the place of what the same handle has; its contents stay. */
  replace(item: T): void {
    this.#write(item);
    this.#forget(item.handle);
    this.#remember(item);
  }

  /** Removes a thing with all that is in it; an unknown handle is fine. */
  delete(handle: string): void {
    if (!this.#byHandle.has(handle)) return;
    rmSync(this.directory(handle), { recursive: true, force: true });
    this.#forget(handle);
  }

  #read(handle: string): T | undefined {
    try {
      const raw: unknown = JSON.parse(
        readFileSync(join(this.directory(handle), this.#kind.metadataFile), 'utf8'),
      );
      return typeof raw === 'object' && raw !== null
        ? this.#kind.parse({ ...raw }, handle)
        : undefined;
    } catch {
      return undefined;
    }
  }

  /** By way of a rename: a process killed meanwhile leaves the old metadata or the new. */
  #write(item: T): void {
    const path = join(this.directory(item.handle), this.#kind.metadataFile);
    const text = JSON.stringify(item, (_key, value: unknown) =>
      typeof value === 'bigint' ? value.toString() : value,
    );
    writeFileSync(`${path}.new`, text);
    renameSync(`${path}.new`, path);
  }

  #remember(item: T): void {
    this.#byHandle.set(item.handle, item);
    this.#byName.set(item.name, item);
    this.#usedBytes += item.capacityBytes;
  }

  #forget(handle: string): void {
    const item = this.#byHandle.get(handle);
    if (item === undefined) return;
    this.#byHandle.delete(handle);
    this.#byName.delete(item.name);
    this.#usedBytes -= item.capacityBytes;
  }
}
