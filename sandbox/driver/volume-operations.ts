import type { MessageInitShape } from '@bufbuild/protobuf';
import type {
  ControllerModifyVolumeRequest,
  CreateVolumeRequest,
  VolumeCapability,
  VolumeContentSource,
  VolumeSchema,
} from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import type { SampleCapability } from './capabilities.ts';
import { makeContents, pathInside } from './contents.ts';
import { DriverStatus } from './driver-status.ts';
import type { OneAtATime } from './one-at-a-time.ts';
import { REQUIRE_SECRET_PARAMETER, requireSecret } from './secrets.ts';
import type { AccessType, StoredSource, StoredVolume, VolumeStore } from './volume-store.ts';

export interface VolumeRules {
  readonly capacityBytes: bigint;
  readonly capabilities: ReadonlySet<SampleCapability>;
  /** Names of mutable parameters; undefined takes all. */
  readonly mutableParameters: ReadonlySet<string> | undefined;
  /** Segments of the only place there is; undefined: no topology. */
  readonly topology: Readonly<Record<string, string>> | undefined;
  readonly store: VolumeStore;
  readonly alone: OneAtATime;
}

const GIB = 1024n ** 3n;

/** What the sample driver does with volumes. */
export class VolumeOperations {
  readonly #rules: VolumeRules;

  constructor(rules: VolumeRules) {
    this.#rules = rules;
  }

  get freeBytes(): bigint {
    const free = this.#rules.capacityBytes - this.#rules.store.usedBytes;
    return free > 0n ? free : 0n;
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
    const source = this.#sourceOf(request.volumeContentSource);
    this.#checkMutable(request.mutableParameters);
    const secretKey = request.parameters[REQUIRE_SECRET_PARAMETER] ?? '';
    requireSecret(secretKey, request.secrets);
    const wish = {
      accessType,
      secretKey,
      mutableParameters: { ...request.mutableParameters },
      ...(source === undefined ? {} : { source }),
    };
    const existing = this.#existing(request, wish);
    // Once more when it is to be made: another replica may have been faster.
    return (
      existing ??
      this.#rules.alone.run(
        `name ${request.name}`,
        () => this.#existing(request, wish) ?? this.#make(request, wish),
      )
    );
  }

  async delete(handle: string, secrets: Readonly<Record<string, string>>): Promise<void> {
    const { store, alone } = this.#rules;
    if (handle === '') throw new DriverStatus(Code.InvalidArgument, 'no volume id given');
    const volume = store.byHandle(handle);
    if (volume === undefined) return;
    requireSecret(volume.secretKey, secrets);
    await alone.run(`volume ${handle}`, () => store.delete(handle));
  }

  async modify({
    volumeId,
    mutableParameters,
    secrets,
  }: ControllerModifyVolumeRequest): Promise<void> {
    const { store, alone } = this.#rules;
    requireSecret(this.get(volumeId).secretKey, secrets);
    this.#checkMutable(mutableParameters);
    await alone.run(`volume ${volumeId}`, () => {
      const volume = this.get(volumeId);
      store.replace({
        ...volume,
        mutableParameters: { ...volume.mutableParameters, ...mutableParameters },
      });
    });
  }

  /** Whether the volume is of the access type that the capabilities name.
   * @throws DriverStatus InvalidArgument for capabilities that name none or both */
  supports(handle: string, capabilities: readonly VolumeCapability[]): boolean {
    return this.get(handle).accessType === accessTypeOf(capabilities);
  }

  /** The volume as answers show it. Mutable parameters have no place there. */
  picture(volume: StoredVolume): MessageInitShape<typeof VolumeSchema> {
    const { store, topology } = this.#rules;
    const path = pathInside(store.directory(volume.handle), volume.accessType);
    return {
      volumeId: volume.handle,
      capacityBytes: volume.capacityBytes,
      volumeContext: volume.accessType === 'block' ? { file: path } : { directory: path },
      ...(volume.source === undefined ? {} : { contentSource: sourcePicture(volume.source) }),
      ...(topology === undefined ? {} : { accessibleTopology: [{ segments: { ...topology } }] }),
    };
  }

  /** The volume that an earlier call made; to find it is no work.
   * @throws DriverStatus AlreadyExists where it is not what is wished for, Aborted where it is just
   *   being changed or deleted, OutOfRange */
  #existing(request: CreateVolumeRequest, wish: Wish): StoredVolume | undefined {
    const { store, alone } = this.#rules;
    const range = rangeOf(request);
    const existing = store.byName(request.name);
    if (existing === undefined) return undefined;
    alone.mustBeFree(`volume ${existing.handle}`);
    const difference = differenceOf(existing, wish, range);
    if (difference === undefined) return existing;
    throw new DriverStatus(Code.AlreadyExists, `volume ${request.name} exists ${difference}`);
  }

  #make(request: CreateVolumeRequest, wish: Wish): StoredVolume {
    const { store } = this.#rules;
    const source = wish.source === undefined ? undefined : this.#find(wish.source);
    const capacityBytes = capacityFor(rangeOf(request), source?.capacityBytes);
    if (capacityBytes > this.freeBytes) {
      throw new DriverStatus(
        Code.ResourceExhausted,
        `the pool has ${this.freeBytes} bytes left, ${capacityBytes} are asked for`,
      );
    }
    const volume = { name: request.name, capacityBytes, ...wish };
    return store.create(volume, (directory) => makeContents(directory, volume, source?.directory));
  }

  #sourceOf(source: VolumeContentSource | undefined): StoredSource | undefined {
    if (source === undefined) return undefined;
    const { case: kind, value } = source.type;
    const { capabilities } = this.#rules;
    if (kind === 'snapshot' && capabilities.has('CREATE_DELETE_SNAPSHOT'))
      return { kind, handle: value.snapshotId };
    if (kind === 'volume' && capabilities.has('CLONE_VOLUME'))
      return { kind, handle: value.volumeId };
    throw new DriverStatus(
      Code.InvalidArgument,
      `this driver makes no volumes from ${kind === undefined ? 'nothing' : `a ${kind}`}`,
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

  #find({ kind, handle }: StoredSource): {
    readonly capacityBytes: bigint;
    readonly directory: string;
  } {
    const { store } = this.#rules;
    const from = kind === 'volume' ? store : store.snapshots;
    const found = from.byHandle(handle);
    if (found === undefined)
      throw new DriverStatus(Code.NotFound, `there is no ${kind} ${handle} to make a volume from`);
    return { capacityBytes: found.capacityBytes, directory: from.directory(handle) };
  }
}

type Wish = Omit<StoredVolume, 'handle' | 'name' | 'capacityBytes'>;

interface Range {
  readonly requiredBytes: bigint;
  readonly limitBytes: bigint;
}

function rangeOf({ capacityRange }: CreateVolumeRequest): Range {
  const { requiredBytes = 0n, limitBytes = 0n } = capacityRange ?? {};
  if (requiredBytes < 0n || limitBytes < 0n || (limitBytes > 0n && limitBytes < requiredBytes)) {
    throw new DriverStatus(
      Code.OutOfRange,
      `no size fits at least ${requiredBytes} and at most ${limitBytes} bytes`,
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

/** What is different, as the end of a sentence; undefined: what exists does. */
function differenceOf(
  existing: StoredVolume,
  wish: Pick<StoredVolume, 'accessType' | 'source'>,
  range: Range,
): string | undefined {
  const { capacityBytes, accessType, source } = existing;
  if (
    capacityBytes < range.requiredBytes ||
    (range.limitBytes > 0n && capacityBytes > range.limitBytes)
  )
    return `with ${capacityBytes} bytes`;
  if (accessType !== wish.accessType) return `as a ${accessType} volume`;
  if (source?.kind === wish.source?.kind && source?.handle === wish.source?.handle)
    return undefined;
  return source === undefined
    ? 'and was made empty'
    : `and was made from ${source.kind} ${source.handle}`;
}

/** What is required, else the source's size, else 1 GiB or the limit, whichever is less. */
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

function sourcePicture({
  kind,
  handle,
}: StoredSource): MessageInitShape<typeof VolumeSchema>['contentSource'] {
  return kind === 'snapshot'
    ? { type: { case: 'snapshot', value: { snapshotId: handle } } }
    : { type: { case: 'volume', value: { volumeId: handle } } };
}
