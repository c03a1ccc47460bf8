import { randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Code } from '#src/csi/status.ts';
import { DriverStatus } from './driver-status.ts';

/** What volumes and snapshots have in common. */
interface Stored {
  readonly handle: string;
  /** The name given at creation; a repeated creation with it returns the same item. */
  readonly name: string;
  readonly capacityBytes: bigint;
  /** The pool whose capacity it uses; absent: the only pool. */
  readonly pool?: string;
}

/** The content source of a volume. */
export interface StoredSource {
  readonly kind: 'snapshot' | 'volume';
  readonly handle: string;
}

export interface StoredVolume extends Stored {
  readonly accessType: 'mount' | 'block';
  /** Absent if it was created empty. */
  readonly source?: StoredSource;
  /** Parameters of its VolumeAttributesClass; ControllerModifyVolume changes them. */
  readonly mutableParameters: Readonly<Record<string, string>>;
}

/** A snapshot. Its capacity is the volume's when the snapshot was created. */
export interface StoredSnapshot extends Stored {
  /** Handle of its volume, which may be deleted. */
  readonly sourceVolume: string;
  readonly createdMs: number;
}

/** A part of a list. */
interface Page<T> {
  readonly items: readonly T[];
  /** Asks for the next part; '' after the last one. */
  readonly nextToken: string;
}

/** Items in memory, each also as a file of a folder, so that another process finds them. */
class Store<T extends Stored> {
  readonly #folder: string;
  readonly #prefix: string;
  readonly #byHandle = new Map<string, T>();
  readonly #byName = new Map<string, T>();
  readonly #usedBytes = new Map<string, bigint>();

  /** Opens the folder, creates it if it is missing, and reads its items.
   * @param prefix  of the handles; each is also the name of a file */
  constructor(folder: string, prefix: string) {
    this.#folder = resolve(folder);
    this.#prefix = prefix;
    mkdirSync(this.#folder, { recursive: true });
    for (const name of readdirSync(this.#folder).filter((each) => each.startsWith(prefix))) {
      const text = readFileSync(this.file(name), 'utf8');
      // Only this driver writes its files, so it does not check their contents.
      this.#remember(
        JSON.parse(text, (key, value: unknown) =>
          key === 'capacityBytes' ? BigInt(String(value)) : value,
        ) as T,
      );
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

  /** A page of items. The token is the last handle of a page, so that the next page is right even
   * if items were created or deleted in between.
   * @throws DriverStatus for a negative size, and for a token of another list */
  page(
    isMeant: (item: T) => boolean,
    at: { readonly maxEntries: number; readonly startingToken: string },
  ): Page<T> {
    const { maxEntries, startingToken } = at;
    if (maxEntries < 0) throw new DriverStatus(Code.InvalidArgument, 'max_entries is negative');
    if (startingToken !== '' && !startingToken.startsWith(this.#prefix))
      throw new DriverStatus(Code.Aborted, `no page starts at "${startingToken}"`);
    const rest = this.list().filter((item) => item.handle > startingToken && isMeant(item));
    const items = rest.slice(0, maxEntries || rest.length);
    return { items, nextToken: items.length < rest.length ? (items.at(-1)?.handle ?? '') : '' };
  }

  byHandle(handle: string): T | undefined {
    return this.#byHandle.get(handle);
  }

  byName(name: string): T | undefined {
    return this.#byName.get(name);
  }

  /** Absolute path of an item's file. */
  file(handle: string): string {
    return join(this.#folder, handle);
  }

  /** Creates an item with a new handle; the caller has checked that the name is free. */
  create(item: Omit<T, 'handle'>): T {
    // For a generic T the compiler can't see that the handle and the rest make a T.
    const stored = { handle: `${this.#prefix}${randomUUID()}`, ...item } as unknown as T;
    this.replace(stored);
    return stored;
  }

  /** Writes by rename, so that a killed process leaves either the old or the new item. */
  replace(item: T): void {
    const file = this.file(`new-${item.handle}`);
    writeFileSync(
      file,
      JSON.stringify(item, (_key, value: unknown) =>
        typeof value === 'bigint' ? value.toString() : value,
      ),
    );
    renameSync(file, this.file(item.handle));
    this.#forget(item.handle);
    this.#remember(item);
  }

  /** Removes an item, if it exists. */
  delete(handle: string): void {
    if (!this.#byHandle.has(handle)) return;
    rmSync(this.file(handle), { force: true });
    this.#forget(handle);
  }

  #remember(item: T): void {
    this.#byHandle.set(item.handle, item);
    this.#byName.set(item.name, item);
    this.#count(item, item.capacityBytes);
  }

  #forget(handle: string): void {
    const item = this.#byHandle.get(handle);
    if (item === undefined) return;
    this.#byHandle.delete(handle);
    this.#byName.delete(item.name);
    this.#count(item, -item.capacityBytes);
  }

  #count({ pool = '' }: T, bytes: bigint): void {
    this.#usedBytes.set(pool, this.usedBytes(pool) + bytes);
  }
}

/** The volumes and snapshots of a driver, in one folder. */
export class VolumeStore extends Store<StoredVolume> {
  readonly snapshots: Store<StoredSnapshot>;

  constructor(folder: string) {
    super(folder, 'vol-');
    this.snapshots = new Store(folder, 'snap-');
  }
}
