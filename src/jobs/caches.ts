import type { KubeClient } from '../kube/client.ts';
import type { Class, KubeObject, VolumeAttachment } from '../kube/objects.ts';
import { type Change, type Reflector, startReflector } from '../kube/reflector.ts';
import { classes, volumeAttachments } from '../kube/resources.ts';
import { unlessAborted } from '../runtime/abort.ts';
import type { Logger } from '../runtime/log.ts';
import type { Registry } from '../runtime/metrics.ts';
import { type NodeWatch, startNodeWatch } from '../topology/node-watch.ts';
import { type DriverFacts, supportsTopology } from '../volumes/driver-facts.ts';
import type { FeatureGates } from '../volumes/feature-gates.ts';
import type { WatchedTopology } from '../volumes/topology/requirement.ts';

/** The objects that processors read from memory instead of the API server: classes, the attachments
 * of volumes, and nodes. */
export interface Caches {
  readonly classOf: (name: string) => Class | undefined;
  /** The attachments of a volume; empty for a driver that doesn't attach. */
  readonly attachedTo: (volume: string) => readonly VolumeAttachment[];
  /** The nodes as a driver with topology sees them; undefined until they are listed. Starts to
   * watch them if the driver had no topology when this process started. */
  readonly topology: (driver: string) => WatchedTopology | undefined;
  /** Starts to watch attachments if the driver attaches, and nodes if it has topology. Resolves
   * when all objects are listed, or when the signal aborts. */
  waitForSync(driver: DriverFacts, signal: AbortSignal): Promise<void>;
  /** Why the caches are not up to date, in one line; undefined while they are. */
  readonly trouble: string | undefined;
  stop(): Promise<void>;
}

/** Starts to watch classes. */
export function startCaches(options: {
  client: KubeClient;
  log: Logger;
  metrics: Registry;
  gates: FeatureGates;
}): Caches {
  const classReflector = startReflector({
    ...options,
    resource: classes,
    transform: (raw) => trimMetadata(raw as Class),
  });
  const attachments = new AttachmentIndex();
  let attachmentReflector: Reflector<VolumeAttachment> | undefined;
  let nodeWatch: NodeWatch | undefined;
  return {
    classOf: (name) => classReflector.get(name),
    attachedTo: (volume) => attachments.of(volume),
    topology(driver) {
      nodeWatch ??= startNodeWatch({ ...options, driver });
      return nodeWatch.hasSynced ? nodeWatch : undefined;
    },
    async waitForSync(driver, signal) {
      if (driver.controllerCapabilities.has('PUBLISH_UNPUBLISH_VOLUME')) {
        attachmentReflector = startReflector({
          ...options,
          resource: volumeAttachments,
          transform: (raw) => trimMetadata(raw as VolumeAttachment),
          onChange: (change) => attachments.apply(change),
        });
      }
      if (supportsTopology(driver, options.gates))
        nodeWatch = startNodeWatch({ ...options, driver: driver.name });
      await unlessAborted(
        Promise.all([
          classReflector.waitForSync(signal),
          attachmentReflector?.waitForSync(signal),
          nodeWatch?.waitForSync(signal),
        ]),
        signal,
      );
    },
    get trouble() {
      return classReflector.trouble ?? attachmentReflector?.trouble ?? nodeWatch?.trouble;
    },
    async stop() {
      await Promise.all([classReflector.stop(), attachmentReflector?.stop(), nodeWatch?.stop()]);
    },
  };
}

/** Drops the metadata that no processor reads; the managed fields are the largest part. */
function trimMetadata<T extends KubeObject>(object: T): T {
  const { name, uid, resourceVersion } = object.metadata;
  return { ...object, metadata: { name, uid, resourceVersion } };
}

/** VolumeAttachments by the name of their PV. Those of pods' inline volumes have no PV and are left
 * out. */
class AttachmentIndex {
  readonly #byVolume = new Map<string, Map<string, VolumeAttachment>>();

  apply({ type, object }: Change<VolumeAttachment>): void {
    const volume = object.spec.source.persistentVolumeName;
    if (volume === undefined) return;
    const attachments = this.#byVolume.get(volume) ?? new Map<string, VolumeAttachment>();
    if (type === 'deleted') attachments.delete(object.metadata.name);
    else attachments.set(object.metadata.name, object);
    if (attachments.size === 0) this.#byVolume.delete(volume);
    else this.#byVolume.set(volume, attachments);
  }

  of(volume: string): readonly VolumeAttachment[] {
    return [...(this.#byVolume.get(volume)?.values() ?? [])];
  }
}
