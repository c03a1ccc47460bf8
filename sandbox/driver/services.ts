import { lstatSync, readlinkSync, symlinkSync, unlinkSync } from 'node:fs';
import type {
  DescMessage,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from '@bufbuild/protobuf';
import {
  Controller,
  ControllerServiceCapability_RPC_Type as ControllerCapability,
  Identity,
  Node,
  type NodePublishVolumeRequest,
  type NodeUnpublishVolumeRequest,
  PluginCapability_Service_Type as PluginService,
} from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import type { Clock } from '#src/runtime/clock.ts';
import { version } from '#src/runtime/version.ts';
import { DriverStatus } from './driver-status.ts';
import { OperationLocks } from './operation-locks.ts';
import type { Pools, Segments } from './pools.ts';
import { SnapshotOperations } from './snapshot-operations.ts';
import { VolumeOperations } from './volume-operations.ts';
import type { VolumeStore } from './volume-store.ts';

export interface ServiceOptions {
  readonly name: string;
  readonly nodeId: string;
  readonly pools: Pools;
  /** Minimum time of each creation, deletion and change. */
  readonly delayMs: number;
  readonly mutableParameters: readonly string[] | undefined;
  /** Segments of the node that this driver runs on; undefined: no topology. */
  readonly nodeSegments: Segments | undefined;
  readonly store: VolumeStore;
  readonly clock: Clock;
}

/** One RPC and its implementation. */
export interface Operation {
  readonly method: DescMethodUnary;
  readonly answer: (
    request: never,
  ) => Promise<MessageInitShape<DescMessage>> | MessageInitShape<DescMessage>;
}

/** The controller's capabilities. */
const CAPABILITIES = [
  ControllerCapability.CREATE_DELETE_VOLUME,
  ControllerCapability.LIST_VOLUMES,
  ControllerCapability.GET_CAPACITY,
  ControllerCapability.GET_VOLUME,
  ControllerCapability.CREATE_DELETE_SNAPSHOT,
  ControllerCapability.LIST_SNAPSHOTS,
  ControllerCapability.CLONE_VOLUME,
  ControllerCapability.MODIFY_VOLUME,
];

/** The RPCs of the driver. gRPC answers all others with Unimplemented. */
export function driverOperations(options: ServiceOptions): readonly Operation[] {
  const { store } = options;
  const locks = new OperationLocks(options);
  const volumes = new VolumeOperations({ ...options, locks });
  const snapshots = new SnapshotOperations({ ...options, locks });
  return [
    ...identityOperations(options),
    operation(Controller.method.controllerGetCapabilities, () => ({
      capabilities: CAPABILITIES.map((type) => ({
        type: { case: 'rpc' as const, value: { type } },
      })),
    })),
    operation(Controller.method.createVolume, async (request) => ({
      volume: volumes.toMessage(await volumes.create(request)),
    })),
    operation(Controller.method.deleteVolume, ({ volumeId }) =>
      volumes.delete(volumeId).then(() => ({})),
    ),
    operation(Controller.method.controllerModifyVolume, (request) =>
      volumes.modify(request).then(() => ({})),
    ),
    operation(Controller.method.controllerGetVolume, ({ volumeId }) => ({
      volume: volumes.toMessage(volumes.get(volumeId)),
      status: {},
    })),
    operation(Controller.method.validateVolumeCapabilities, ({ volumeId, volumeCapabilities }) =>
      volumes.supports(volumeId, volumeCapabilities)
        ? { confirmed: { volumeCapabilities } }
        : { message: `volume ${volumeId} is a ${volumes.get(volumeId).accessType} volume` },
    ),
    operation(Controller.method.getCapacity, ({ accessibleTopology }) =>
      volumes.capacity(accessibleTopology?.segments ?? {}),
    ),
    operation(Controller.method.listVolumes, (request) => {
      const { items, nextToken } = store.page(() => true, request);
      return { entries: items.map((volume) => ({ volume: volumes.toMessage(volume) })), nextToken };
    }),
    operation(Controller.method.createSnapshot, async (request) => ({
      snapshot: snapshots.toMessage(await snapshots.create(request)),
    })),
    operation(Controller.method.deleteSnapshot, ({ snapshotId }) =>
      snapshots.delete(snapshotId).then(() => ({})),
    ),
    operation(Controller.method.listSnapshots, (request) => {
      const { snapshotId: id, sourceVolumeId: source } = request;
      const { items, nextToken } = store.snapshots.page(
        ({ handle, sourceVolume }) =>
          (id === '' || handle === id) && (source === '' || sourceVolume === source),
        request,
      );
      return { entries: items.map((each) => ({ snapshot: snapshots.toMessage(each) })), nextToken };
    }),
    ...nodeOperations(options, volumes),
  ];
}

function identityOperations({ name, pools }: ServiceOptions): Operation[] {
  const services = [
    PluginService.CONTROLLER_SERVICE,
    ...(pools.haveTopology ? [PluginService.VOLUME_ACCESSIBILITY_CONSTRAINTS] : []),
  ];
  return [
    operation(Identity.method.getPluginInfo, () => ({ name, vendorVersion: version })),
    operation(Identity.method.getPluginCapabilities, () => ({
      capabilities: services.map((type) => ({
        type: { case: 'service' as const, value: { type } },
      })),
    })),
    operation(Identity.method.probe, () => ({ ready: true })),
  ];
}

/** Publishes a volume by a symbolic link to its file, in place of a mount. */
function nodeOperations(
  { nodeId, nodeSegments, store }: ServiceOptions,
  volumes: VolumeOperations,
): Operation[] {
  return [
    operation(Node.method.nodeGetInfo, () => ({
      nodeId,
      ...(nodeSegments === undefined
        ? {}
        : { accessibleTopology: { segments: { ...nodeSegments } } }),
    })),
    operation(Node.method.nodeGetCapabilities, () => ({})),
    operation(Node.method.nodePublishVolume, (request) => {
      const { volumeId, targetPath, volumeCapability } = checkTarget(request);
      if (!volumes.supports(volumeId, volumeCapability ? [volumeCapability] : []))
        throw new DriverStatus(Code.InvalidArgument, `volume ${volumeId} is of another type`);
      if (linkAt(targetPath) !== store.file(volumeId))
        symlinkSync(store.file(volumeId), targetPath);
      return {};
    }),
    operation(Node.method.nodeUnpublishVolume, (request) => {
      const { volumeId, targetPath } = checkTarget(request);
      if (linkAt(targetPath) === store.file(volumeId)) unlinkSync(targetPath);
      return {};
    }),
  ];
}

function checkTarget<T extends NodePublishVolumeRequest | NodeUnpublishVolumeRequest>(
  request: T,
): T {
  if (request.volumeId === '' || request.targetPath === '')
    throw new DriverStatus(Code.InvalidArgument, 'a volume id and a target path must be given');
  return request;
}

/** The target of a symbolic link; undefined if there is no link. */
function linkAt(path: string): string | undefined {
  const entry = lstatSync(path, { throwIfNoEntry: false });
  return entry?.isSymbolicLink() === true ? readlinkSync(path) : undefined;
}

function operation<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  answer: (request: MessageShape<I>) => Promise<MessageInitShape<O>> | MessageInitShape<O>,
): Operation {
  // The list mixes methods of all types; server.ts calls each answer with its own method's codec.
  return { method, answer };
}
