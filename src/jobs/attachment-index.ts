import type { VolumeAttachment } from '../kube/objects.ts';
import type { Change } from '../kube/reflector.ts';

/** The attachments of each volume. Those of volumes that stand in a pod's own spec have no
 * PersistentVolume and are left out. */
export class AttachmentIndex {
  readonly #byVolume = new Map<string, Map<string, VolumeAttachment>>();

  /** Takes in a change of an attachment. */
  apply({ type, object }: Change<VolumeAttachment>): void {
    const volume = object.spec.source.persistentVolumeName;
    if (volume === undefined) return;
    const attachments = this.#byVolume.get(volume) ?? new Map<string, VolumeAttachment>();
    if (type === 'deleted') attachments.delete(object.metadata.name);
    else attachments.set(object.metadata.name, object);
    if (attachments.size === 0) this.#byVolume.delete(volume);
    else this.#byVolume.set(volume, attachments);
  }

  /** What a volume is attached by. */
  of(volume: string): readonly VolumeAttachment[] {
    return [...(this.#byVolume.get(volume)?.values() ?? [])];
  }
}
