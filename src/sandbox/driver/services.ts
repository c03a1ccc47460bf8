import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import {
  Controller,
  ControllerServiceCapability_RPC_Type as ControllerCapability,
  Identity,
  Node,
  PluginCapability_Service_Type as PluginService,
} from '../../csi/generated/csi_pb.ts';
import type { CreateVolumeRequest, ListVolumesRequest } from '../../csi/generated/csi_pb.ts';
import { Code } from '../../csi/status.ts';
import type { Clock } from '../../runtime/clock.ts';
import { version } from '../../runtime/version.ts';
import { DriverStatus } from './driver-status.ts';
import type { StoredVolume, VolumeStore } from './volume-store.ts';

/** Parameter of a class: the key that secrets of every call about its volumes must have. */
export const REQUIRE_SECRET_PARAMETER = 'requireSecret';

export interface ServiceOptions {
  readonly name: string;
  readonly nodeId: string;
  readonly capacityBytes: bigint;
  /** How long each create and delete takes, at least. */
  readonly delayMs: number;
  readonly store: VolumeStore;
  readonly clock: Clock;
}

/** One RPC with what answers it. */
export interface Operation {
  readonly method: DescMethodUnary;
  readonly answer: (request: never) => Promise<MessageInitShape<DescMessage>> | MessageInitShape<DescMessage>;
}

const GIB = 1024n ** 3n;

/** The driver's RPCs. What isn't here gRPC itself answers with Unimplemented. */
export function driverOperations(options: ServiceOptions): readonly Operation[] {
  const { store } = options;
  const volumes = new VolumeOperations(options);
  return [
    operation(Identity.method.getPluginInfo, () => ({ name: options.name, vendorVersion: version })),
    operation(Identity.method.getPluginCapabilities, () => ({
      capabilities: [{ type: { case: 'service' as const, value: { type: PluginService.CONTROLLER_SERVICE } } }],
    })),
    operation(Identity.method.probe, () => ({ ready: true })),
    operation(Controller.method.controllerGetCapabilities, () => ({
      capabilities: [
        ControllerCapability.CREATE_DELETE_VOLUME,
        ControllerCapability.LIST_VOLUMES,
        ControllerCapability.GET_CAPACITY,
        ControllerCapability.GET_VOLUME,
        ControllerCapability.SINGLE_NODE_MULTI_WRITER,
      ].map((type) => ({ type: { case: 'rpc' as const, value: { type } } })),
    })),
    operation(Controller.method.createVolume, async (request) => ({ volume: pictureOf(await volumes.create(request), store) })),
    operation(Controller.method.deleteVolume, async ({ volumeId, secrets }) => {
      await volumes.delete(volumeId, secrets);
      return {};
    }),
    operation(Controller.method.controllerGetVolume, ({ volumeId }) => ({ volume: pictureOf(volumes.get(volumeId), store), status: {} })),
    operation(Controller.method.validateVolumeCapabilities, ({ volumeId, volumeCapabilities }) => {
      volumes.get(volumeId);
      if (volumeCapabilities.length === 0) throw new DriverStatus(Code.InvalidArgument, 'no volume capabilities to validate');
      return { confirmed: { volumeCapabilities } };
    }),
    operation(Controller.method.getCapacity, () => ({ availableCapacity: volumes.freeBytes })),
    operation(Controller.method.listVolumes, (request) => listPage(request, store)),
    operation(Node.method.nodeGetInfo, () => ({ nodeId: options.nodeId })),
    operation(Node.method.nodeGetCapabilities, () => ({})),
  ];
}

class VolumeOperations {
  readonly #options: ServiceOptions;
  /** Names and handles that a call is working on; as many real drivers do, a second call is told to come again. */
  readonly #busy = new Set<string>();

  constructor(options: ServiceOptions) {
    this.#options = options;
  }

  get freeBytes(): bigint {
    const free = this.#options.capacityBytes - this.#options.store.usedBytes;
    return free > 0n ? free : 0n;
  }

  get(handle: string): StoredVolume {
    const volume = this.#options.store.byHandle(handle);
    if (handle === '') throw new DriverStatus(Code.InvalidArgument, 'no volume id given');
    if (volume === undefined) throw new DriverStatus(Code.NotFound, `there is no volume ${handle}`);
    return volume;
  }

  create(request: CreateVolumeRequest): Promise<StoredVolume> {
    if (request.name === '') throw new DriverStatus(Code.InvalidArgument, 'no volume name given');
    if (request.volumeCapabilities.length === 0) throw new DriverStatus(Code.InvalidArgument, 'no volume capabilities given');
    if (request.volumeContentSource !== undefined) throw new DriverStatus(Code.InvalidArgument, 'this driver makes empty volumes only');
    const secretKey = request.parameters[REQUIRE_SECRET_PARAMETER] ?? '';
    requireSecret(secretKey, request.secrets);
    return this.#alone(`name ${request.name}`, () => this.#createOnce(request, secretKey));
  }

  #createOnce(request: CreateVolumeRequest, secretKey: string): StoredVolume {
    const { store } = this.#options;
    const { requiredBytes = 0n, limitBytes = 0n } = request.capacityRange ?? {};
    if (requiredBytes < 0n || limitBytes < 0n || (limitBytes > 0n && limitBytes < requiredBytes)) {
      throw new DriverStatus(Code.OutOfRange, `no size fits at least ${requiredBytes} and at most ${limitBytes} bytes`);
    }
    const existing = store.byName(request.name);
    if (existing !== undefined) {
      const fits = existing.capacityBytes >= requiredBytes && (limitBytes === 0n || existing.capacityBytes <= limitBytes);
      if (fits) return existing;
      throw new DriverStatus(Code.AlreadyExists, `volume ${request.name} exists with ${existing.capacityBytes} bytes`);
    }
    const wishedBytes = requiredBytes > 0n ? requiredBytes : limitBytes > 0n && limitBytes < GIB ? limitBytes : GIB;
    if (wishedBytes > this.freeBytes) {
      throw new DriverStatus(Code.ResourceExhausted, `the pool has ${this.freeBytes} bytes left, ${wishedBytes} are asked for`);
    }
    return store.create({ name: request.name, capacityBytes: wishedBytes, secretKey });
  }

  async delete(handle: string, secrets: Readonly<Record<string, string>>): Promise<void> {
    const { store } = this.#options;
    if (handle === '') throw new DriverStatus(Code.InvalidArgument, 'no volume id given');
    requireSecret(store.byHandle(handle)?.secretKey ?? '', secrets);
    await this.#alone(`volume ${handle}`, () => store.delete(handle));
  }

  async #alone<T>(what: string, work: () => T): Promise<T> {
    if (this.#busy.has(what)) throw new DriverStatus(Code.Aborted, `an operation on ${what} is under way`);
    this.#busy.add(what);
    try {
      // Like real storage, the work goes on whether or not the caller still waits.
      if (this.#options.delayMs > 0) await this.#options.clock.sleep(this.#options.delayMs);
      return work();
    } finally {
      this.#busy.delete(what);
    }
  }
}

function operation<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  answer: (request: MessageShape<I>) => Promise<MessageInitShape<O>> | MessageInitShape<O>,
): Operation {
  // The list holds methods of all types; server.ts pairs each answer with its own method's codec again.
  return { method, answer };
}

function requireSecret(key: string, secrets: Readonly<Record<string, string>>): void {
  if (key === '') return;
  if (!Object.hasOwn(secrets, key)) throw new DriverStatus(Code.InvalidArgument, `the secret must have the key ${key}`);
}

function pictureOf(volume: StoredVolume, store: VolumeStore): MessageInitShape<typeof Controller.method.createVolume.output>['volume'] {
  return { volumeId: volume.handle, capacityBytes: volume.capacityBytes, volumeContext: { directory: store.directory(volume.handle) } };
}

/** Pages go by handle: the token is the last handle shown, so that volumes made or deleted meanwhile neither repeat nor hide others. */
function listPage(
  { maxEntries, startingToken }: ListVolumesRequest,
  store: VolumeStore,
): MessageInitShape<typeof Controller.method.listVolumes.output> {
  if (maxEntries < 0) throw new DriverStatus(Code.InvalidArgument, 'max_entries is negative');
  if (startingToken !== '' && !startingToken.startsWith('vol-'))
    throw new DriverStatus(Code.Aborted, `no page starts at "${startingToken}"`);
  const rest = store.list().filter(({ handle }) => handle > startingToken);
  const page = maxEntries === 0 ? rest : rest.slice(0, maxEntries);
  const last = page.at(-1);
  return {
    entries: page.map((volume) => ({ volume: pictureOf(volume, store) })),
    nextToken: page.length < rest.length && last !== undefined ? last.handle : '',
  };
}
