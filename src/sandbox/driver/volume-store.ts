import { randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** A volume as its metadata file has it. */
export interface StoredVolume {
  readonly handle: string;
  readonly name: string;
  readonly capacityBytes: bigint;
  /** Key that must be among the secrets of a call about this volume; '' = none. */
  readonly secretKey: string;
}

const METADATA_FILE = 'volume.json';

/** Volumes as directories of a folder, each with a metadata file, so that a restart finds them again.
 * Calls are synchronous: nothing can come between looking and making, and at this size it costs less than the way through the thread pool. */
export class VolumeStore {
  readonly #folder: string;
  readonly #byHandle = new Map<string, StoredVolume>();
  readonly #byName = new Map<string, StoredVolume>();
  #usedBytes = 0n;

  /** Opens the folder, makes it if need be, and reads what is there. A directory without readable metadata was never answered for: it goes. */
  constructor(folder: string) {
    this.#folder = folder;
    mkdirSync(folder, { recursive: true });
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      if (!entry.isDirectory()) continue;
      const volume = readMetadata(join(folder, entry.name), entry.name);
      if (volume === undefined) rmSync(join(folder, entry.name), { recursive: true, force: true });
      else this.#remember(volume);
    }
  }

  /** Bytes that the volumes take together. */
  get usedBytes(): bigint {
    return this.#usedBytes;
  }

  /** All volumes, by handle. */
  list(): readonly StoredVolume[] {
    return [...this.#byHandle.values()].sort((a, b) => (a.handle < b.handle ? -1 : 1));
  }

  byHandle(handle: string): StoredVolume | undefined {
    return this.#byHandle.get(handle);
  }

  byName(name: string): StoredVolume | undefined {
    return this.#byName.get(name);
  }

  /** Directory of a volume. */
  directory(handle: string): string {
    return join(this.#folder, handle);
  }

  /** Makes a volume under a fresh handle; the caller has seen that the name is free. */
  create(volume: Omit<StoredVolume, 'handle'>): StoredVolume {
    const stored = { handle: `vol-${randomUUID()}`, ...volume };
    mkdirSync(this.directory(stored.handle));
    writeFileSync(
      join(this.directory(stored.handle), METADATA_FILE),
      JSON.stringify({ ...stored, capacityBytes: stored.capacityBytes.toString() }),
    );
    this.#remember(stored);
    return stored;
  }

  /** Removes a volume with all that is in it; an unknown handle is fine. */
  delete(handle: string): void {
    const volume = this.#byHandle.get(handle);
    if (volume === undefined) return;
    rmSync(this.directory(handle), { recursive: true, force: true });
    this.#byHandle.delete(handle);
    this.#byName.delete(volume.name);
    this.#usedBytes -= volume.capacityBytes;
  }

  #remember(volume: StoredVolume): void {
    this.#byHandle.set(volume.handle, volume);
    this.#byName.set(volume.name, volume);
    this.#usedBytes += volume.capacityBytes;
  }
}

function readMetadata(directory: string, handle: string): StoredVolume | undefined {
  try {
    const raw: unknown = JSON.parse(readFileSync(join(directory, METADATA_FILE), 'utf8'));
    if (typeof raw !== 'object' || raw === null || !('name' in raw) || !('capacityBytes' in raw)) return undefined;
    const secretKey = 'secretKey' in raw ? String(raw.secretKey) : '';
    return { handle, name: String(raw.name), capacityBytes: BigInt(String(raw.capacityBytes)), secretKey };
  } catch {
    return undefined;
  }
}
