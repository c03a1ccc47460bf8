import type { KubeClient } from '../kube/client.ts';
import type { Class, KubeObject, VolumeAttachment } from '../kube/objects.ts';
import { type Reflector, startReflector } from '../kube/reflector.ts';
import { classes, volumeAttachments } from '../kube/resources.ts';
import { unlessAborted } from '../runtime/abort.ts';
import type { Logger } from '../runtime/log.ts';
import type { Registry } from '../runtime/metrics.ts';
import type { DriverFacts } from '../volumes/driver-facts.ts';
import { AttachmentIndex } from './attachment-index.ts';

/** The objects that processors read from memory instead of the API server: classes, and the
 * attachments of volumes. */
export interface Caches {
  readonly classOf: (name: string) => Class | undefined;
  /** The attachments of a volume; empty for a driver that doesn't attach. */
  readonly attachedTo: (volume: string) => readonly VolumeAttachment[];
  /** Starts to watch attachments if the driver attaches. Resolves when every object has been listed,
   * or at the signal's abort. */
  synced(driver: Pick<DriverFacts, 'controllerCapabilities'>, signal: AbortSignal): Promise<void>;
  /** Why the caches are not up to date, in one line; undefined while they are. */
  readonly trouble: string | undefined;
  stop(): Promise<void>;
}

/** Starts to watch classes. */
export function startCaches(options: {
  client: KubeClient;
  log: Logger;
  metrics: Registry;
}): Caches {
  const classReflector = startReflector({
    ...options,
    resource: classes,
    transform: (raw) => trimMetadata(raw as Class),
  });
  const attachments = new AttachmentIndex();
  let attachmentReflector: Reflector<VolumeAttachment> | undefined;
  return {
    classOf: (name) => classReflector.get(name),
    attachedTo: (volume) => attachments.of(volume),
    async synced(driver, signal) {
      if (driver.controllerCapabilities.has('PUBLISH_UNPUBLISH_VOLUME')) {
        attachmentReflector = startReflector({
          ...options,
          resource: volumeAttachments,
          transform: (raw) => trimMetadata(raw as VolumeAttachment),
          onChange: (change) => attachments.apply(change),
        });
      }
      await unlessAborted(
        Promise.all([classReflector.synced(signal), attachmentReflector?.synced(signal)]),
        signal,
      );
    },
    get trouble() {
      return classReflector.trouble ?? attachmentReflector?.trouble;
    },
    async stop() {
      await Promise.all([classReflector.stop(), attachmentReflector?.stop()]);
    },
  };
}

/** Drops the metadata that no processor reads; the managed fields are the largest part. */
function trimMetadata<T extends KubeObject>(object: T): T {
  const { name, uid, resourceVersion } = object.metadata;
  return { ...object, metadata: { name, uid, resourceVersion } };
}
