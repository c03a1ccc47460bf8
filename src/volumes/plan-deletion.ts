import { PROVISIONED_BY } from '../kube/keys.ts';
import type { Class, Volume, VolumeAttachment } from '../kube/objects.ts';
import { volumeAttachments } from '../kube/resources.ts';
import { chooseSecret, type SecretChoice } from './deletion.ts';
import { type DriverFacts, missingCapability } from './driver-facts.ts';
import { handleOf } from './handles.ts';
import { isInTreeVolume } from '../migration/volumes.ts';
import { catchRefusal, type Refusal, RefusedError } from '../rules/refused-error.ts';
import { refuseUntilChanged } from '../rules/rule.ts';

/** What DeleteVolume is called with, or why it is not called. */
export type DeletionPlan =
  | {
      readonly kind: 'delete';
      readonly handle: string;
      /** The PV is stored in the form of an in-tree plug-in. */
      readonly isMigrated: boolean;
      readonly secret: SecretChoice;
    }
  | Refusal;

/** What the rule needs besides the volume. */
export interface DeletionContext {
  readonly driver: DriverFacts;
  readonly classOf: (name: string) => Class | undefined;
  /** The VolumeAttachments of a PV; empty for a driver that does not attach. */
  readonly attachedTo: (volume: string) => readonly VolumeAttachment[];
}

/** Plans the deletion of a volume in the driver. The checks are in upstream's order, since the user
 * reads the first that fails: external-provisioner pkg/controller/controller.go Delete. */
export function planDeletion(volume: Volume, context: DeletionContext): DeletionPlan {
  return catchRefusal<DeletionPlan>(
    () => checkDeletion(volume, context),
    ({ message, waitsFor }) => ({ kind: 'refuse', message, waitsFor }),
  );
}

function checkDeletion(
  volume: Volume,
  { driver, classOf, attachedTo }: DeletionContext,
): DeletionPlan {
  const target = handleOf(volume);
  if (target === undefined) throw new RefusedError('invalid CSI PV');
  // Our driver would not know the handle or, worse, would delete another volume.
  if (target.driver !== driver.name)
    throw new RefusedError(
      `the volume is of driver ${target.driver}, not of ${driver.name}: ` +
        `correct the annotation ${PROVISIONED_BY}, or delete the volume by hand`,
    );
  const missing = missingCapability(driver);
  if (missing !== undefined) throw new RefusedError(missing);
  const secret = chooseSecret(volume, driver, classOf);
  checkDetached(volume, attachedTo(volume.metadata.name));
  return { kind: 'delete', handle: target.handle, isMigrated: isInTreeVolume(volume), secret };
}

/** Any VolumeAttachment refuses the deletion: neither its status nor its own deletion proves that
 * the node no longer uses the volume. Upstream: canDeleteVolume. */
function checkDetached(volume: Volume, attachments: readonly VolumeAttachment[]): void {
  // Pick by name so that retries repeat the same message.
  const [attachment] = attachments.toSorted((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
  if (attachment === undefined) return;
  const { nodeName } = attachment.spec;
  const message = `persistentvolume ${volume.metadata.name} is still attached to node ${nodeName}`;
  throw refuseUntilChanged(volumeAttachments, attachment, message);
}
