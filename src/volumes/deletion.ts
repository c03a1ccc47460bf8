import type { EventInput } from '../kube/events.ts';
import { hasFinalizer } from '../kube/finalizers.ts';
import * as keys from '../kube/keys.ts';
import type {
  Class,
  ObjectMeta,
  ObjectReference,
  Volume,
  VolumeAttachment,
} from '../kube/objects.ts';
import { volumeAttachments } from '../kube/resources.ts';
import { isInTreeVolume, translateClass } from '../migration/plugins.ts';
import {
  catchRefusal,
  prefixRefusal,
  type Refusal,
  RefusedError,
  refuseUntilChanged,
} from '../rules/rule.ts';
import { omitUnset } from '../runtime/json.ts';
import {
  type DriverFacts,
  type DriverNames,
  isKnownAs,
  missingCapability,
} from './driver-facts.ts';
import { handleOf } from './handles.ts';
import { secretRef, type SecretRef } from './secret-ref.ts';

/** What to do about a volume now. */
export type VolumeVerdict =
  | { readonly kind: 'ignore'; readonly reason: string }
  | { readonly kind: 'add-finalizer' | 'remove-finalizer' | 'delete' };

/** Decides whether a volume is this driver's, and what to do about it. Upstream:
 * sig-storage-lib-external-provisioner controller/controller.go syncVolume. */
export function shouldDelete(volume: Volume, driver: DriverNames): VolumeVerdict {
  const notOurs = whyNotOurs(volume, driver);
  if (notOurs !== undefined) return { kind: 'ignore', reason: notOurs };
  const change = judgeFinalizer(volume);
  if (change !== undefined) return { kind: change };
  const reason = whyNotDeleted(volume);
  return reason === undefined ? { kind: 'delete' } : { kind: 'ignore', reason };
}

/** Why a volume is not this driver's, or undefined. Upstream: isProvisionerForVolume. */
function whyNotOurs(volume: Volume, driver: DriverNames): string | undefined {
  const provisionedBy = volume.metadata.annotations?.[keys.PROVISIONED_BY];
  const migratedTo = volume.metadata.annotations?.[keys.MIGRATED_TO];
  if (provisionedBy !== undefined)
    return isKnownAs(driver, provisionedBy) || isKnownAs(driver, migratedTo)
      ? undefined
      : `provisioned by ${provisionedBy}`;
  const owner = volume.spec.csi?.driver ?? migratedTo;
  return isKnownAs(driver, owner) ? undefined : `volume of ${owner ?? 'no CSI driver'}`;
}

/** Decides whether to add or remove our finalizer. Upstream: handleProtectionFinalizer. */
function judgeFinalizer(volume: Volume): 'add-finalizer' | 'remove-finalizer' | undefined {
  const policy = volume.spec.persistentVolumeReclaimPolicy;
  const isKept = policy === 'Retain' || policy === 'Recycle';
  if (hasFinalizer(volume, keys.VOLUME_FINALIZER)) return isKept ? 'remove-finalizer' : undefined;
  const isInUse = volume.status?.phase === 'Bound' && !isTerminating(volume);
  return policy === 'Delete' && isInUse ? 'add-finalizer' : undefined;
}

/** Why not to delete a volume in the driver now, or undefined. Upstream: shouldDelete. */
function whyNotDeleted(volume: Volume): string | undefined {
  const policy = volume.spec.persistentVolumeReclaimPolicy;
  if (policy !== 'Delete') return `reclaim policy is ${policy ?? 'not set'}`;
  if (!hasFinalizer(volume, keys.VOLUME_FINALIZER) && isTerminating(volume))
    return 'already deleted in the driver: our finalizer is gone';
  const phase = volume.status?.phase;
  return phase === 'Released' ? undefined : `phase is ${phase ?? 'not set'}`;
}

function isTerminating({ metadata }: Volume): boolean {
  return metadata.deletionTimestamp !== undefined;
}

/** The secret for DeleteVolume by the annotations that were written at creation; undefined for
 * none. */
function deletionSecret(metadata: Pick<ObjectMeta, 'annotations'>): SecretRef | undefined {
  const name = metadata.annotations?.[keys.DELETION_SECRET_NAME] ?? '';
  const namespace = metadata.annotations?.[keys.DELETION_SECRET_NAMESPACE] ?? '';
  return name === '' || namespace === '' ? undefined : { name, namespace };
}

/** The secret that a deletion needs. */
export interface SecretChoice {
  readonly ref?: SecretRef;
  /** For the log: why there is no secret although the class may name one. */
  readonly note?: string;
}

/** The secret of a deletion: by the volume's annotations if it has both, even empty ones; otherwise
 * by its class. Upstream: external-provisioner pkg/controller/controller.go
 * handleSecretsForDeletion.
 * @throws RefusedError for a class that can't be translated, or whose secret can't be resolved */
export function chooseSecret(
  volume: Volume,
  driver: DriverNames,
  classOf: (name: string) => Class | undefined,
): SecretChoice {
  const { annotations = {} } = volume.metadata;
  if (keys.DELETION_SECRET_NAME in annotations && keys.DELETION_SECRET_NAMESPACE in annotations)
    return omitUnset({ ref: deletionSecret(volume.metadata) });
  const className = annotations[keys.BETA_STORAGE_CLASS] ?? volume.spec.storageClassName ?? '';
  if (className === '') return {};
  const stored = classOf(className);
  if (stored === undefined) return { note: `storageClass "${className}" not found` };
  const isMigrated = stored.provisioner === driver.inTreeName && isInTreeVolume(volume);
  const cls = isMigrated ? translateClass(stored) : stored;
  if (volume.spec.claimRef === undefined)
    return { note: 'the class’s secret can’t be resolved: the volume has no claimRef' };
  return omitUnset({ ref: secretOfClass(cls, volume.metadata.name, volume.spec.claimRef) });
}

/** Upstream: getSecretsFromSC. */
function secretOfClass(
  cls: Class,
  volumeName: string,
  { name = '', namespace = '' }: ObjectReference,
): SecretRef | undefined {
  const claim = { name, namespace, annotations: {} };
  return prefixRefusal(`failed to get secretreference for volume ${volumeName}`, () =>
    secretRef('Provisioner', cls.parameters ?? {}, { volumeName, claim }),
  );
}

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
        `correct the annotation ${keys.PROVISIONED_BY}, or delete the volume by hand`,
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

/** The warning on a volume whose deletion failed. Upstream: sig-storage-lib-external-provisioner
 * controller/controller.go deleteVolumeOperation. */
export function volumeFailedDelete(
  { metadata: { name, uid, resourceVersion } }: Volume,
  message: string,
): EventInput {
  return {
    type: 'Warning',
    reason: 'VolumeFailedDelete',
    message,
    regarding: { kind: 'PersistentVolume', apiVersion: 'v1', name, uid, resourceVersion },
  };
}
