import type { KubeClient } from '../kube/client.ts';
import type { Class, KubeObject, VolumeAttachment } from '../kube/objects.ts';
import { type Reflector, startReflector } from '../kube/reflector.ts';
import { CLASS_SETTINGS } from '../kube/keys.ts';
import { classes, volumeAttachments } from '../kube/resources.ts';
import { unlessAborted } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { Registry } from '../runtime/metrics.ts';
import { NodeWatch } from '../topology/node-watch.ts';
import type { ClusterTopology } from '../topology/cluster-topology.ts';
import { type DriverFacts, supportsTopology } from '../volumes/driver-facts.ts';
import type { FeatureGates } from '../volumes/flags.ts';

/** The objects that the processors of one driver read from memory instead of the API server:
 * classes, the attachments of volumes, and nodes. */
export interface DriverCaches {
  readonly classOf: (name: string) => Class | undefined;
  /** The attachments of a volume; empty for a driver that doesn't attach. */
  readonly attachedTo: (volume: string) => readonly VolumeAttachment[];
  /** The nodes, for a driver with topology; undefined until the watch has listed them. The first
   * call starts the watch if the driver had no topology before. */
  readonly topology: () => ClusterTopology | undefined;
  /** Resolves when all objects are listed, or when the signal aborts. */
  waitForSync(signal: AbortSignal): Promise<void>;
  /** Why the caches are not up to date, in one line; undefined while they are. */
  readonly trouble: string | undefined;
  /** Stops the watches that serve only this driver. */
  stop(): Promise<void>;
}

/** The caches of a process. All drivers share classes and attachments. Each driver has its own
 * nodes, because its topology keys differ. */
export interface Caches {
  /** Starts to watch attachments if the driver attaches, and nodes if it has topology. */
  openDriver(driver: DriverFacts, gates: FeatureGates): DriverCaches;
  /** Why classes or attachments are not up to date, in one line; undefined while they are. */
  readonly trouble: string | undefined;
  stop(): Promise<void>;
}

/** Starts to watch classes. */
export function startCaches(options: {
  client: KubeClient;
  log: Logger;
  metrics: Registry;
  ownNode?: string | undefined;
}): Caches {
  const classReflector = startReflector({
    ...options,
    resource: classes,
    transform: (raw) => trimMetadata(raw as Class),
  });
  let attachmentReflector: Reflector<VolumeAttachment> | undefined;
  const watchAttachments = (): Reflector<VolumeAttachment> =>
    (attachmentReflector ??= startReflector({
      ...options,
      resource: volumeAttachments,
      transform: (raw) => trimMetadata(raw as VolumeAttachment),
    }));
  const caches: Caches = {
    openDriver(driver, gates) {
      const attaches = driver.controllerCapabilities.has('PUBLISH_UNPUBLISH_VOLUME');
      const attachments = attaches ? watchAttachments() : undefined;
      const watchNodes = (): NodeWatch => new NodeWatch({ ...options, driver: driver.name });
      let nodeWatch = supportsTopology(driver, gates) ? watchNodes() : undefined;
      return {
        classOf: (name) => classReflector.get(name),
        attachedTo: (volume) =>
          [...(attachments?.list() ?? [])].filter(
            ({ spec }) => spec.source.persistentVolumeName === volume,
          ),
        topology() {
          nodeWatch ??= watchNodes();
          return nodeWatch.hasSynced ? nodeWatch : undefined;
        },
        async waitForSync(signal) {
          const watches = [classReflector, attachments, nodeWatch];
          const all = watches.map(async (watch) => watch?.waitForSync(signal));
          await unlessAborted(Promise.all(all), signal);
        },
        get trouble() {
          return caches.trouble ?? nodeWatch?.trouble;
        },
        async stop() {
          await nodeWatch?.stop();
        },
      };
    },
    get trouble() {
      return classReflector.trouble ?? attachmentReflector?.trouble;
    },
    async stop() {
      await Promise.all([classReflector.stop(), attachmentReflector?.stop()]);
    },
  };
  return caches;
}

/** Drops the metadata that no processor reads; the managed fields are the largest part. */
function trimMetadata<T extends KubeObject>(object: T): T {
  const { name, uid, resourceVersion, annotations = {} } = object.metadata;
  const kept = Object.entries(annotations).filter(([key]) => CLASS_SETTINGS.includes(key));
  const settings = kept.length === 0 ? {} : { annotations: Object.fromEntries(kept) };
  return { ...object, metadata: { name, uid, resourceVersion, ...settings } };
}
