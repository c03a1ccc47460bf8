import type { MessageInitShape } from '@bufbuild/protobuf';
import type {
  ControllerModifyVolumeRequest,
  CreateVolumeRequest,
  GetCapacityResponseSchema,
  VolumeCapability,
  VolumeContentSource,
  VolumeSchema,
} from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import { DriverStatus } from './driver-status.ts';
import type { OperationLocks } from './operation-locks.ts';
import type { Pools, Segments } from './pools.ts';
import type { StoredSource, StoredVolume, VolumeStore } from './volume-store.ts';

export interface VolumeRules {
  readonly pools: Pools;
  /** Names of mutable parameters; undefined accepts all. */
  readonly mutableParameters: readonly string[] | undefined;
  readonly store: VolumeStore;
  readonly locks: OperationLocks;
}

const GIB = 1024n ** 3n;

/** Implements the calls for volumes. */
export class VolumeOperations {
  readonly #rules: VolumeRules;

  constructor(rules: VolumeRules) {
    this.#rules = rules;
  }

  /** Room within these segments: altogether, and for one volume if the pools are on nodes. */
  capacity(segments: Segments): MessageInitShape<typeof GetCapacityResponseSchema> {
    const { pools } = this.#rules;
    const free = pools.within(segments).map((pool) => pools.freeBytes(pool));
    return {
      availableCapacity: free.reduce((a, b) => a + b, 0n),
      ...(pools.areOnNodes
        ? { maximumVolumeSize: free.reduce((a, b) => (a > b ? a : b), 0n) }
        : {}),
    };
  }

  /** @throws DriverStatus InvalidArgument without a handle, NotFound for an unknown one */
  get(handle: string): StoredVolume {
    if (handle === '') throw new DriverStatus(Code.InvalidArgument, 'no volume id given');
    const volume = this.#rules.store.byHandle(handle);
    if (volume === undefined) throw new DriverStatus(Code.NotFound, `there is no volume ${handle}`);
    return volume;
  }

  async create(request: CreateVolumeRequest): Promise<StoredVolume> {
    if (request.name === '') throw new DriverStatus(Code.InvalidArgument, 'no volume name given');
    this.#checkMutable(request.mutableParameters);
    const source = sourceOf(request.volumeContentSource);
    const wanted = {
      accessType: accessTypeOf(request.volumeCapabilities),
      mutableParameters: { ...request.mutableParameters },
      ...(source === undefined ? {} : { source }),
    };
    // Looks again right before the creation, because another replica may have been faster.
    return (
      this.#findExisting(request, wanted) ??
      this.#rules.locks.run(
        `name ${request.name}`,
        () => this.#findExisting(request, wanted) ?? this.#createVolume(request, wanted),
      )
    );
  }

  async delete(handle: string): Promise<void> {
    const { store, locks } = this.#rules;
    if (handle === '') throw new DriverStatus(Code.InvalidArgument, 'no volume id given');
    if (store.byHandle(handle) !== undefined)
      await locks.run(`volume ${handle}`, () => store.delete(handle));
  }

  async modify(request: ControllerModifyVolumeRequest): Promise<void> {
    const { store, locks } = this.#rules;
    const { handle } = this.get(request.volumeId);
    this.#checkMutable(request.mutableParameters);
    await locks.run(`volume ${handle}`, () => {
      const volume = this.get(handle);
      const mutableParameters = { ...volume.mutableParameters, ...request.mutableParameters };
      store.replace({ ...volume, mutableParameters });
    });
  }

  /** Whether the volume has the access type of the capabilities.
   * @throws DriverStatus InvalidArgument for capabilities with no access type or both */
  supports(handle: string, capabilities: readonly VolumeCapability[]): boolean {
    const accessType = accessTypeOf(capabilities);
    return this.get(handle).accessType === accessType;
  }

  /** The volume as a message for answers, which has no field for mutable parameters. */
  toMessage(volume: StoredVolume): MessageInitShape<typeof VolumeSchema> {
    const { store, pools } = this.#rules;
    const segments = pools.segmentsOf(volume.pool ?? '');
    return {
      volumeId: volume.handle,
      capacityBytes: volume.capacityBytes,
      volumeContext: { file: store.file(volume.handle) },
      ...(volume.source === undefined ? {} : { contentSource: sourceMessage(volume.source) }),
      ...(segments === undefined ? {} : { accessibleTopology: [{ segments: { ...segments } }] }),
    };
  }

  /** The volume that an earlier call with this name created.
   * @throws DriverStatus AlreadyExists if it differs from the request, Aborted during its change or
   *   deletion, OutOfRange */
  #findExisting(request: CreateVolumeRequest, wanted: Wanted): StoredVolume | undefined {
    const { store, locks, pools } = this.#rules;
    const range = rangeOf(request);
    const existing = store.byName(request.name);
    if (existing === undefined) return undefined;
    locks.checkFree(`volume ${existing.handle}`);
    const { capacityBytes, accessType, source, pool = '' } = existing;
    const isWanted =
      pools.satisfies(pool, request.accessibilityRequirements) &&
      isWithin(range, capacityBytes) &&
      accessType === wanted.accessType &&
      source?.handle === wanted.source?.handle;
    if (isWanted) return existing;
    const what = `${accessType}, ${capacityBytes} bytes, source ${source?.handle ?? 'none'}`;
    throw new DriverStatus(
      Code.AlreadyExists,
      `volume ${request.name} exists and is different: ${what}, pool '${pool}'`,
    );
  }

  #createVolume(request: CreateVolumeRequest, wanted: Wanted): StoredVolume {
    const { store, pools } = this.#rules;
    const capacityBytes = capacityFor(rangeOf(request), this.#sizeOf(wanted.source));
    const pool = pools.choose(capacityBytes, request.accessibilityRequirements);
    const place = pool.name === '' ? {} : { pool: pool.name };
    return store.create({ name: request.name, capacityBytes, ...wanted, ...place });
  }

  #checkMutable(parameters: Readonly<Record<string, string>>): void {
    const known = this.#rules.mutableParameters;
    const unknown = Object.keys(parameters).find((name) => known?.includes(name) === false);
    if (unknown !== undefined)
      throw new DriverStatus(Code.InvalidArgument, `there is no mutable parameter ${unknown}`);
  }

  /** The bytes that a volume with this source has at least. */
  #sizeOf(source: StoredSource | undefined): bigint | undefined {
    if (source === undefined) return undefined;
    const { kind, handle } = source;
    const { store } = this.#rules;
    const found = (kind === 'volume' ? store : store.snapshots).byHandle(handle);
    if (found !== undefined) return found.capacityBytes;
    throw new DriverStatus(Code.NotFound, `there is no ${kind} ${handle}`);
  }
}

type Wanted = Pick<StoredVolume, 'accessType' | 'source' | 'mutableParameters'>;

interface Range {
  readonly requiredBytes: bigint;
  readonly limitBytes: bigint;
}

function rangeOf({ capacityRange }: CreateVolumeRequest): Range {
  const { requiredBytes = 0n, limitBytes = 0n } = capacityRange ?? {};
  if (requiredBytes < 0n || limitBytes < 0n || (limitBytes > 0n && limitBytes < requiredBytes)) {
    const why = `no size is at least ${requiredBytes} and at most ${limitBytes} bytes`;
    throw new DriverStatus(Code.OutOfRange, why);
  }
  return { requiredBytes, limitBytes };
}

function isWithin({ requiredBytes, limitBytes }: Range, bytes: bigint): boolean {
  return bytes >= requiredBytes && (limitBytes === 0n || bytes <= limitBytes);
}

function accessTypeOf(capabilities: readonly VolumeCapability[]): StoredVolume['accessType'] {
  const [kind, ...others] = new Set(capabilities.map(({ accessType }) => accessType.case));
  if (kind === undefined || others.length > 0)
    throw new DriverStatus(
      Code.InvalidArgument,
      'the volume capabilities must have one access type, block or mount',
    );
  return kind;
}

/** The required size; without one the source's size; without a source 1 GiB, or the limit if that
 * is less. */
function capacityFor(range: Range, sourceBytes: bigint | undefined): bigint {
  const { requiredBytes, limitBytes } = range;
  const usualBytes = sourceBytes ?? (limitBytes > 0n && limitBytes < GIB ? limitBytes : GIB);
  const bytes = requiredBytes > 0n ? requiredBytes : usualBytes;
  if (bytes >= (sourceBytes ?? 0n) && isWithin(range, bytes)) return bytes;
  throw new DriverStatus(
    Code.OutOfRange,
    `the source has ${sourceBytes} bytes, which the requested size does not allow`,
  );
}

function sourceOf(source: VolumeContentSource | undefined): StoredSource | undefined {
  if (source === undefined) return undefined;
  const { case: kind, value } = source.type;
  if (kind === 'snapshot') return { kind, handle: value.snapshotId };
  if (kind === 'volume') return { kind, handle: value.volumeId };
  throw new DriverStatus(Code.InvalidArgument, 'the volume content source is empty');
}

function sourceMessage({
  kind,
  handle,
}: StoredSource): MessageInitShape<typeof VolumeSchema>['contentSource'] {
  return kind === 'snapshot'
    ? { type: { case: 'snapshot', value: { snapshotId: handle } } }
    : { type: { case: 'volume', value: { volumeId: handle } } };
}
