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
import type { SampleCapability } from './capabilities.ts';
import { createContents, pathInside } from './contents.ts';
import { DriverStatus } from './driver-status.ts';
import type { Pools, Segments } from './pools.ts';
import { reservedBytesOf } from './reserved-bytes.ts';
import type { OperationLocks } from './operation-locks.ts';
import { REQUIRE_SECRET_PARAMETER, requireSecret } from './secrets.ts';
import type { AccessType, StoredSource, StoredVolume, VolumeStore } from './volume-store.ts';

export interface VolumeRules {
  readonly pools: Pools;
  readonly capabilities: ReadonlySet<SampleCapability>;
  /** Names of mutable parameters; undefined accepts all. */
  readonly mutableParameters: ReadonlySet<string> | undefined;
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

  /** Room within these segments for volumes with these parameters: altogether, and for one volume
   * where there are several pools.
   * @throws DriverStatus InvalidArgument */
  capacity(
    segments: Segments,
    parameters: Readonly<Record<string, string>>,
  ): MessageInitShape<typeof GetCapacityResponseSchema> {
    const { pools } = this.#rules;
    const reservedBytes = reservedBytesOf(parameters);
    const free = pools.within(segments).map((pool) => pools.freeBytes(pool, reservedBytes));
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
    const accessType = accessTypeOf(request.volumeCapabilities);
    const source = this.#parseSource(request.volumeContentSource);
    this.#checkMutable(request.mutableParameters);
    const secretKey = request.parameters[REQUIRE_SECRET_PARAMETER] ?? '';
    requireSecret(secretKey, request.secrets);
    const wanted = {
      accessType,
      secretKey,
      mutableParameters: { ...request.mutableParameters },
      ...(source === undefined ? {} : { source }),
    };
    const existing = this.#findExisting(request, wanted);
    // Checked again before the creation: another replica may have been faster.
    return (
      existing ??
      this.#rules.locks.run(
        `name ${request.name}`,
        () => this.#findExisting(request, wanted) ?? this.#createVolume(request, wanted),
      )
    );
  }

  async delete(handle: string, secrets: Readonly<Record<string, string>>): Promise<void> {
    const { store, locks } = this.#rules;
    if (handle === '') throw new DriverStatus(Code.InvalidArgument, 'no volume id given');
    const volume = store.byHandle(handle);
    if (volume === undefined) return;
    requireSecret(volume.secretKey, secrets);
    await locks.run(`volume ${handle}`, () => store.delete(handle));
  }

  async modify({
    volumeId,
    mutableParameters,
    secrets,
  }: ControllerModifyVolumeRequest): Promise<void> {
    const { store, locks } = this.#rules;
    requireSecret(this.get(volumeId).secretKey, secrets);
    this.#checkMutable(mutableParameters);
    await locks.run(`volume ${volumeId}`, () => {
      const volume = this.get(volumeId);
      store.replace({
        ...volume,
        mutableParameters: { ...volume.mutableParameters, ...mutableParameters },
      });
    });
  }

  /** Whether the volume has the access type of the capabilities.
   * @throws DriverStatus InvalidArgument for capabilities with no access type or both */
  supports(handle: string, capabilities: readonly VolumeCapability[]): boolean {
    return this.get(handle).accessType === accessTypeOf(capabilities);
  }

  /** The volume as a message for answers, which has no field for mutable parameters. */
  toMessage(volume: StoredVolume): MessageInitShape<typeof VolumeSchema> {
    const { store, pools } = this.#rules;
    const segments = pools.segmentsOf(volume.pool ?? '');
    const path = pathInside(store.directory(volume.handle), volume.accessType);
    return {
      volumeId: volume.handle,
      capacityBytes: volume.capacityBytes,
      volumeContext: volume.accessType === 'block' ? { file: path } : { directory: path },
      ...(volume.source === undefined ? {} : { contentSource: sourceMessage(volume.source) }),
      ...(segments === undefined ? {} : { accessibleTopology: [{ segments: { ...segments } }] }),
    };
  }

  /** The volume that an earlier call with this name created.
   * @throws DriverStatus AlreadyExists if it differs from what is requested, Aborted while it is
   *   being changed or deleted, OutOfRange */
  #findExisting(request: CreateVolumeRequest, wanted: Wanted): StoredVolume | undefined {
    const { store, locks, pools } = this.#rules;
    const range = rangeOf(request);
    const existing = store.byName(request.name);
    if (existing === undefined) return undefined;
    locks.checkFree(`volume ${existing.handle}`);
    const isInPlace = pools.satisfies(existing.pool ?? '', request.accessibilityRequirements);
    const difference = isInPlace
      ? differenceOf(existing, wanted, range)
      : `on ${existing.pool ?? 'another node'}`;
    if (difference === undefined) return existing;
    throw new DriverStatus(Code.AlreadyExists, `volume ${request.name} exists ${difference}`);
  }

  #createVolume(request: CreateVolumeRequest, wanted: Wanted): StoredVolume {
    const { store, pools } = this.#rules;
    const source = wanted.source === undefined ? undefined : this.#openSource(wanted.source);
    const capacityBytes = capacityFor(rangeOf(request), source?.capacityBytes);
    const pool = pools.choose(capacityBytes, {
      requirement: request.accessibilityRequirements,
      reservedBytes: reservedBytesOf(request.parameters),
    });
    const volume = {
      name: request.name,
      capacityBytes,
      ...wanted,
      ...(pool.name === '' ? {} : { pool: pool.name }),
    };
    return store.create(volume, (directory) =>
      createContents(directory, volume, source?.directory),
    );
  }

  #parseSource(source: VolumeContentSource | undefined): StoredSource | undefined {
    if (source === undefined) return undefined;
    const { case: kind, value } = source.type;
    const { capabilities } = this.#rules;
    if (kind === 'snapshot' && capabilities.has('CREATE_DELETE_SNAPSHOT'))
      return { kind, handle: value.snapshotId };
    if (kind === 'volume' && capabilities.has('CLONE_VOLUME'))
      return { kind, handle: value.volumeId };
    throw new DriverStatus(
      Code.InvalidArgument,
      kind === undefined
        ? 'the volume content source is empty'
        : `this driver can't create a volume from a ${kind}`,
    );
  }

  #checkMutable(parameters: Readonly<Record<string, string>>): void {
    const { capabilities, mutableParameters } = this.#rules;
    const names = Object.keys(parameters);
    if (names.length > 0 && !capabilities.has('MODIFY_VOLUME'))
      throw new DriverStatus(Code.InvalidArgument, 'this driver has no mutable parameters');
    const unknown =
      mutableParameters === undefined
        ? undefined
        : names.find((name) => !mutableParameters.has(name));
    if (unknown !== undefined)
      throw new DriverStatus(Code.InvalidArgument, `there is no mutable parameter ${unknown}`);
  }

  #openSource({ kind, handle }: StoredSource): {
    readonly capacityBytes: bigint;
    readonly directory: string;
  } {
    const { store } = this.#rules;
    const from = kind === 'volume' ? store : store.snapshots;
    const found = from.byHandle(handle);
    if (found === undefined)
      throw new DriverStatus(
        Code.NotFound,
        `cannot create a volume: there is no ${kind} ${handle}`,
      );
    return { capacityBytes: found.capacityBytes, directory: from.directory(handle) };
  }
}

type Wanted = Omit<StoredVolume, 'handle' | 'name' | 'capacityBytes' | 'pool'>;

interface Range {
  readonly requiredBytes: bigint;
  readonly limitBytes: bigint;
}

function rangeOf({ capacityRange }: CreateVolumeRequest): Range {
  const { requiredBytes = 0n, limitBytes = 0n } = capacityRange ?? {};
  if (requiredBytes < 0n || limitBytes < 0n || (limitBytes > 0n && limitBytes < requiredBytes)) {
    throw new DriverStatus(
      Code.OutOfRange,
      `no size is at least ${requiredBytes} and at most ${limitBytes} bytes`,
    );
  }
  return { requiredBytes, limitBytes };
}

function accessTypeOf(capabilities: readonly VolumeCapability[]): AccessType {
  if (capabilities.length === 0)
    throw new DriverStatus(Code.InvalidArgument, 'no volume capabilities given');
  const kinds = new Set(capabilities.map(({ accessType }) => accessType.case));
  if (kinds.size > 1)
    throw new DriverStatus(Code.InvalidArgument, 'a volume is block or mount, not both');
  const [kind] = kinds;
  if (kind === undefined)
    throw new DriverStatus(Code.InvalidArgument, 'a volume capability has no access type');
  return kind;
}

/** How an existing volume differs from the requested one, as the end of a sentence; undefined where
 * it does not. */
function differenceOf(
  existing: StoredVolume,
  wanted: Pick<StoredVolume, 'accessType' | 'source'>,
  range: Range,
): string | undefined {
  const { capacityBytes, accessType, source } = existing;
  if (
    capacityBytes < range.requiredBytes ||
    (range.limitBytes > 0n && capacityBytes > range.limitBytes)
  )
    return `with ${capacityBytes} bytes`;
  if (accessType !== wanted.accessType) return `as a ${accessType} volume`;
  if (source?.kind === wanted.source?.kind && source?.handle === wanted.source?.handle)
    return undefined;
  return source === undefined
    ? 'and was created empty'
    : `and was created from ${source.kind} ${source.handle}`;
}

/** The required size; without one the source's size; without a source 1 GiB, or the limit if that
 * is less. */
function capacityFor(
  { requiredBytes, limitBytes }: Range,
  sourceBytes: bigint | undefined,
): bigint {
  if (sourceBytes === undefined)
    return requiredBytes > 0n
      ? requiredBytes
      : limitBytes > 0n && limitBytes < GIB
        ? limitBytes
        : GIB;
  const bytes = requiredBytes > 0n ? requiredBytes : sourceBytes;
  if (bytes < sourceBytes)
    throw new DriverStatus(
      Code.OutOfRange,
      `${bytes} bytes are less than the ${sourceBytes} of the source`,
    );
  if (limitBytes > 0n && bytes > limitBytes)
    throw new DriverStatus(
      Code.OutOfRange,
      `the source has ${sourceBytes} bytes, at most ${limitBytes} are allowed`,
    );
  return bytes;
}

function sourceMessage({
  kind,
  handle,
}: StoredSource): MessageInitShape<typeof VolumeSchema>['contentSource'] {
  return kind === 'snapshot'
    ? { type: { case: 'snapshot', value: { snapshotId: handle } } }
    : { type: { case: 'volume', value: { volumeId: handle } } };
}
