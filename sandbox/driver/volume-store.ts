import { DirectoryStore, type Stored } from './directory-store.ts';

/** The form of a volume: a directory (mount), or a file in place of a device (block). */
export type AccessType = 'mount' | 'block';

/** The content source of a volume. */
export interface StoredSource {
  readonly kind: 'snapshot' | 'volume';
  readonly handle: string;
}

/** The metadata of a volume. */
export interface StoredVolume extends Stored {
  /** Key that the secrets of each call for this volume must have; '': none. */
  readonly secretKey: string;
  readonly accessType: AccessType;
  /** Absent if it was created empty. */
  readonly source?: StoredSource;
  /** Parameters of its VolumeAttributesClass; ControllerModifyVolume changes them. */
  readonly mutableParameters: Readonly<Record<string, string>>;
}

/** The metadata of a snapshot. Its capacity is that of the volume at the time of the snapshot. */
export interface StoredSnapshot extends Stored {
  /** Key that the secrets of each call for this snapshot must have; '': none. */
  readonly secretKey: string;
  readonly accessType: AccessType;
  /** Handle of the volume that it is a snapshot of; the volume may be deleted. */
  readonly sourceVolume: string;
  readonly createdMs: number;
}

/** Volumes and snapshots, as directories of one folder. */
export class VolumeStore extends DirectoryStore<StoredVolume> {
  readonly snapshots: DirectoryStore<StoredSnapshot>;

  constructor(folder: string) {
    super(folder, { prefix: 'vol-', metadataFile: 'volume.json', parse: parseVolume });
    this.snapshots = new DirectoryStore(folder, {
      prefix: 'snap-',
      metadataFile: 'snapshot.json',
      parse: parseSnapshot,
    });
  }
}

type Raw = Readonly<Record<string, unknown>>;

function parseVolume(raw: Raw, handle: string): StoredVolume | undefined {
  const base = parseBase(raw, handle);
  if (base === undefined) return undefined;
  const { source, mutableParameters, pool } = raw;
  return {
    ...base,
    ...(isSource(source) ? { source } : {}),
    ...(typeof pool === 'string' ? { pool } : {}),
    mutableParameters: isObject(mutableParameters)
      ? Object.fromEntries(
          Object.entries(mutableParameters).map(([key, value]) => [key, String(value)]),
        )
      : {},
  };
}

function parseSnapshot(raw: Raw, handle: string): StoredSnapshot | undefined {
  const base = parseBase(raw, handle);
  if (
    base === undefined ||
    typeof raw['sourceVolume'] !== 'string' ||
    typeof raw['createdMs'] !== 'number'
  )
    return undefined;
  return { ...base, sourceVolume: raw['sourceVolume'], createdMs: raw['createdMs'] };
}

function parseBase(raw: Raw, handle: string) {
  const { name, capacityBytes, secretKey, accessType } = raw;
  if (typeof name !== 'string' || typeof capacityBytes !== 'string') return undefined;
  return {
    handle,
    name,
    capacityBytes: BigInt(capacityBytes),
    secretKey: typeof secretKey === 'string' ? secretKey : '',
    accessType: accessType === 'block' ? ('block' as const) : ('mount' as const),
  };
}

function isSource(value: unknown): value is StoredSource {
  return (
    isObject(value) &&
    (value['kind'] === 'snapshot' || value['kind'] === 'volume') &&
    typeof value['handle'] === 'string'
  );
}

function isObject(value: unknown): value is Raw {
  return typeof value === 'object' && value !== null;
}
