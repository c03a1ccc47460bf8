import { randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

/** What volumes and snapshots have in common. */
export interface Stored {
  readonly handle: string;
  /** The name given at creation; a repeated creation with it returns the same item. */
  readonly name: string;
  readonly capacityBytes: bigint;
  /** The pool that it uses capacity of; absent: of the only one. */
  readonly pool?: string;
}

/** How one kind of item is stored. */
export interface StoreKind<T extends Stored> {
  /** The prefix of its handles; the store ignores directories with other names. */
  readonly prefix: string;
  readonly metadataFile: string;
  /** @returns undefined where the metadata is not valid */
  readonly parse: (raw: Readonly<Record<string, unknown>>, handle: string) => T | undefined;
}

/** Items as directories of a folder, each with a metadata file, so that they survive a restart.
 * File access is synchronous: no other call can run between a check and a write, and for so few
 * files it costs less than the thread pool. */
export class DirectoryStore<T extends Stored> {
  readonly #folder: string;
  readonly #kind: StoreKind<T>;
  readonly #byHandle = new Map<string, T>();
  readonly #byName = new Map<string, T>();
  readonly #usedBytes = new Map<string, bigint>();

  /** Opens the folder, creates it if it is missing, and reads its items. A directory without valid
   * metadata belongs to a creation that was never answered, and is removed. */
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

  /** The sum of the capacities in one pool. */
  usedBytes(pool: string): bigint {
    return this.#usedBytes.get(pool) ?? 0n;
  }

  /** All items, ordered by handle. */
  list(): readonly T[] {
    return [...this.#byHandle.values()].sort((a, b) => (a.handle < b.handle ? -1 : 1));
  }

  byHandle(handle: string): T | undefined {
    return this.#byHandle.get(handle);
  }

  byName(name: string): T | undefined {
    return this.#byName.get(name);
  }

  /** Absolute path of an item's directory, which contains its metadata file and its contents. */
  directory(handle: string): string {
    return join(this.#folder, handle);
  }

  /** Creates an item with a new handle; the caller has checked that the name is free. If `fill`
   * throws, nothing is left behind. */
  create(item: Omit<T, 'handle'>, fill: (directory: string) => void): T {
    const handle = `${this.#kind.prefix}${randomUUID()}`;
    const directory = this.directory(handle);
    mkdirSync(directory);
    // For a generic T the compiler can't see that the handle and the rest make a T.
    const stored = { handle, ...item } as unknown as T;
    try {
      fill(directory);
      // Written last: an item with metadata is complete.
      this.#write(stored);
    } catch (error) {
      rmSync(directory, { recursive: true, force: true });
      throw error;
    }
    this.#remember(stored);
    return stored;
  }

  /** Replaces the metadata of an item; its contents stay. */
  replace(item: T): void {
    this.#write(item);
    this.#forget(item.handle);
    this.#remember(item);
  }

  /** Removes an item with its contents, if it exists. */
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

  /** Writes by rename, so that a process killed meanwhile leaves the old metadata or the new. */
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
    this.#count(item.pool, item.capacityBytes);
  }

  #forget(handle: string): void {
    const item = this.#byHandle.get(handle);
    if (item === undefined) return;
    this.#byHandle.delete(handle);
    this.#byName.delete(item.name);
    this.#count(item.pool, -item.capacityBytes);
  }

  #count(pool = '', bytes: bigint): void {
    this.#usedBytes.set(pool, this.usedBytes(pool) + bytes);
  }
}
