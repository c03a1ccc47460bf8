import type { Class, Volume, VolumeAttachment } from '../kube/objects.ts';
import { PROVISIONED_BY } from '../kube/keys.ts';
import { volumeAttachments } from '../kube/resources.ts';
import { chooseSecret } from './deletion.ts';
import type { SecretChoice } from './deletion.ts';
import { handleOf } from './handles.ts';
import { isInTreeVolume } from './migration/volumes.ts';
import { missingCapability, RefusedError } from './provisioning-options.ts';
import type { WaitCondition, DriverFacts } from './provisioning-options.ts';

/** What DeleteVolume is called with, or why it is not called. */
export type DeletionPlan =
  | {
      readonly kind: 'destroy';
      readonly handle: string;
      /** The PV is stored in the form of an in-tree plug-in. */
      readonly isMigrated: boolean;
      readonly secret: SecretChoice;
    }
  /** `waitsFor`: the objects whose change ends it. */
  | {
      readonly kind: 'refuse';
      readonly message: string;
      readonly waitsFor: readonly WaitCondition[];
    };

/** What the rule knows besides the volume. */
export interface DeletionContext {
  readonly driver: DriverFacts;
  readonly classOf: (name: string) => Class | undefined;
  /** Attachments of a volume; empty for a driver that doesn't attach. */
  readonly attachedTo: (volume: string) => readonly VolumeAttachment[];
}

/** Decides on a volume that is to be deleted. The order of checks is upstream's, since the first
 * that fails is what the user reads (spec 03 §7). */
export function planDeletion(volume: Volume, context: DeletionContext): DeletionPlan {
  try {
    return destroyPlan(volume, context);
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error;
    return { kind: 'refuse', message: error.message, waitsFor: error.waitsFor };
  }
}

function destroyPlan(
  volume: Volume,
  { driver, classOf, attachedTo }: DeletionContext,
): DeletionPlan {
  const found = handleOf(volume);
  if (found === undefined) throw new RefusedError('invalid CSI PV');
  if (found.driver !== driver.name) {
    // Its handle means nothing here, or, worse, another volume.
    throw new RefusedError(
      `the volume is of driver ${found.driver}, not of ${driver.name}: correct the annotation ${PROVISIONED_BY}, or delete it by hand`,
    );
  }
  const missing = missingCapability(driver);
  if (missing !== undefined) throw new RefusedError(missing);
  const secret = chooseSecret(volume, driver, classOf);
  // The one of the least name: another one each time would be news each time.
  const [attachment] = attachedTo(volume.metadata.name).toSorted((a, b) =>
    a.metadata.name < b.metadata.name ? -1 : 1,
  );
  if (attachment !== undefined) throw stillAttached(volume, attachment);
  return { kind: 'destroy', handle: found.handle, isMigrated: isInTreeVolume(volume), secret };
}

/** That it exists is enough: neither its status nor its own deletion says that the node is done
 * with the volume (spec 03 §9). */
function stillAttached(volume: Volume, { metadata, spec }: VolumeAttachment): RefusedError {
  const { name, resourceVersion } = metadata;
  return new RefusedError(
    `persistentvolume ${volume.metadata.name} is still attached to node ${spec.nodeName}`,
    {
      waitsFor: [{ resource: volumeAttachments.plural, name, seen: resourceVersion }],
    },
  );
}
