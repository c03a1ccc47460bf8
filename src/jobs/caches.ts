import type { KubeClient } from '../kube/client.ts';
import type { Class, VolumeAttachment } from '../kube/objects.ts';
import { startReflector } from '../kube/reflector.ts';
import type { Reflector } from '../kube/reflector.ts';
import { classes, volumeAttachments } from '../kube/resources.ts';
import type { Logger } from '../runtime/log.ts';
import type { Registry } from '../runtime/metrics.ts';
import { AttachmentIndex } from './attachment-index.ts';

/** What processors read from memory instead of asking the API server: classes, and which volumes
 * are attached. */
export interface Caches {
  readonly classOf: (name: string) => Class | undefined;
  /** What a volume is attached by; empty for a driver that doesn't attach. */
  readonly attachedTo: (volume: string) => readonly VolumeAttachment[];
  /** Resolves when all that this driver needs is complete. Attachments are watched only for a
   * driver that attaches. */
  synced(
    driver: { readonly controllerCapabilities: ReadonlySet<string> },
    signal: AbortSignal,
  ): Promise<void>;
  readonly trouble: string | undefined;
  stop(): Promise<void>;
}

/** Starts to watch classes. */
export function startCaches(options: {
  client: KubeClient;
  log: Logger;
  metrics: Registry;
}): Caches {
  const classView = startReflector({ ...options, resource: classes, transform: transformClass });
  const attachments = new AttachmentIndex();
  let attachmentView: Reflector<VolumeAttachment> | undefined;
  return {
    classOf: (name) => classView.get(name),
    attachedTo: (volume) => attachments.of(volume),
    async synced(driver, signal) {
      if (driver.controllerCapabilities.has('PUBLISH_UNPUBLISH_VOLUME')) {
        attachmentView = startReflector({
          ...options,
          resource: volumeAttachments,
          transform: transformAttachment,
          onChange: (change) => attachments.apply(change),
        });
      }
      const waits = [classView, attachmentView].flatMap((view) =>
        view === undefined ? [] : [view.synced(signal)],
      );
      await Promise.all(waits).catch((error: unknown) => {
        if (!signal.aborted) throw error;
      });
    },
    get trouble() {
      return classView.trouble ?? attachmentView?.trouble;
    },
    async stop() {
      await Promise.all([classView.stop(), attachmentView?.stop()]);
    },
  };
}

function transformClass(raw: unknown): Class {
  const {
    metadata,
    provisioner,
    parameters,
    mountOptions,
    reclaimPolicy,
    volumeBindingMode,
    allowedTopologies,
  } = raw as Class;
  const { name, uid, resourceVersion } = metadata;
  return {
    metadata: { name, uid, resourceVersion },
    provisioner,
    ...(parameters === undefined ? {} : { parameters }),
    ...(mountOptions === undefined ? {} : { mountOptions }),
    ...(reclaimPolicy === undefined ? {} : { reclaimPolicy }),
    ...(volumeBindingMode === undefined ? {} : { volumeBindingMode }),
    ...(allowedTopologies === undefined ? {} : { allowedTopologies }),
  };
}

function transformAttachment(raw: unknown): VolumeAttachment {
  const { metadata, spec } = raw as VolumeAttachment;
  const { name, uid, resourceVersion } = metadata;
  return {
    metadata: { name, uid, resourceVersion },
    spec: { attacher: spec.attacher, nodeName: spec.nodeName, source: spec.source },
  };
}
