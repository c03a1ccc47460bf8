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
  PluginCapability_Service_Type as PluginService,
} from '#src/csi/generated/csi_pb.ts';
import type { Clock } from '#src/runtime/clock.ts';
import { version } from '#src/runtime/version.ts';
import type { SampleCapability } from './capabilities.ts';
import { publish, unpublish } from './node-operations.ts';
import { OperationLocks } from './operation-locks.ts';
import { pageOf } from './page.ts';
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
  readonly capabilities: ReadonlySet<SampleCapability>;
  readonly mutableParameters: ReadonlySet<string> | undefined;
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

/** The RPCs that the driver's capabilities include. gRPC answers all others with Unimplemented. */
export function driverOperations(options: ServiceOptions): readonly Operation[] {
  const locks = new OperationLocks(options);
  const volumes = new VolumeOperations({ ...options, locks });
  const snapshots = new SnapshotOperations({ ...options, locks });
  const has = (name: SampleCapability): boolean => options.capabilities.has(name);
  return [
    ...identityOperations(options),
    operation(Controller.method.controllerGetCapabilities, () => ({
      capabilities: [...options.capabilities].map((name) => ({
        type: { case: 'rpc' as const, value: { type: ControllerCapability[name] } },
      })),
    })),
    operation(Controller.method.validateVolumeCapabilities, ({ volumeId, volumeCapabilities }) =>
      volumes.supports(volumeId, volumeCapabilities)
        ? { confirmed: { volumeCapabilities } }
        : { message: `volume ${volumeId} is a ${volumes.get(volumeId).accessType} volume` },
    ),
    ...(has('CREATE_DELETE_VOLUME') ? volumeOperations(volumes) : []),
    ...(has('MODIFY_VOLUME')
      ? [
          operation(Controller.method.controllerModifyVolume, (request) =>
            volumes.modify(request).then(() => ({})),
          ),
        ]
      : []),
    ...(has('GET_VOLUME')
      ? [
          operation(Controller.method.controllerGetVolume, ({ volumeId }) => ({
            volume: volumes.toMessage(volumes.get(volumeId)),
            status: {},
          })),
        ]
      : []),
    ...(has('GET_CAPACITY')
      ? [
          operation(Controller.method.getCapacity, ({ accessibleTopology, parameters }) =>
            volumes.capacity(accessibleTopology?.segments ?? {}, parameters),
          ),
        ]
      : []),
    ...(has('LIST_VOLUMES') ? [listOperation(options.store, volumes)] : []),
    ...(has('CREATE_DELETE_SNAPSHOT') ? snapshotOperations(snapshots) : []),
    ...(has('LIST_SNAPSHOTS') ? [listSnapshotsOperation(snapshots)] : []),
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

function volumeOperations(volumes: VolumeOperations): Operation[] {
  return [
    operation(Controller.method.createVolume, async (request) => ({
      volume: volumes.toMessage(await volumes.create(request)),
    })),
    operation(Controller.method.deleteVolume, async ({ volumeId, secrets }) => {
      await volumes.delete(volumeId, secrets);
      return {};
    }),
  ];
}

function listOperation(store: VolumeStore, volumes: VolumeOperations): Operation {
  return operation(Controller.method.listVolumes, (request) => {
    const { items, nextToken } = pageOf(store.list(), request, 'vol-');
    return { entries: items.map((volume) => ({ volume: volumes.toMessage(volume) })), nextToken };
  });
}

function snapshotOperations(snapshots: SnapshotOperations): Operation[] {
  return [
    operation(Controller.method.createSnapshot, async (request) => ({
      snapshot: snapshots.toMessage(await snapshots.create(request)),
    })),
    operation(Controller.method.deleteSnapshot, async ({ snapshotId, secrets }) => {
      await snapshots.delete(snapshotId, secrets);
      return {};
    }),
  ];
}

function listSnapshotsOperation(snapshots: SnapshotOperations): Operation {
  return operation(Controller.method.listSnapshots, (request) => {
    const { items, nextToken } = snapshots.list(request);
    return {
      entries: items.map((snapshot) => ({ snapshot: snapshots.toMessage(snapshot) })),
      nextToken,
    };
  });
}

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
      publish(request, volumes, store);
      return {};
    }),
    operation(Node.method.nodeUnpublishVolume, (request) => {
      unpublish(request, store);
      return {};
    }),
  ];
}

function operation<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  answer: (request: MessageShape<I>) => Promise<MessageInitShape<O>> | MessageInitShape<O>,
): Operation {
  // The list mixes methods of all types; server.ts calls each answer with its own method's codec.
  return { method, answer };
}
