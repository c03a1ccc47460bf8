import * as keys from '../kube/keys.ts';
import type { ObjectMeta, Volume } from '../kube/objects.ts';
import { volumeName } from './names.ts';
import { isKnownAs } from './provisioning-options.ts';
import type { DriverNames, ProvisioningOptions } from './provisioning-options.ts';
import type { SecretRef } from './secret-ref.ts';

/** What a volume needs of us now. */
export type VolumeVerdict =
  | { readonly kind: 'ignore'; readonly reason: string }
  | { readonly kind: 'add-finalizer' }
  | { readonly kind: 'remove-finalizer' }
  | { readonly kind: 'delete' };

/** Whether a volume is this driver's and what is to be done with it (spec 03 §3 to §5). */
export function judgeVolume(volume: Volume, driver: DriverNames): VolumeVerdict {
  const notOurs = responsibility(volume, driver);
  if (notOurs !== undefined) return { kind: 'ignore', reason: notOurs };
  const policy = volume.spec.persistentVolumeReclaimPolicy;
  const phase = volume.status?.phase;
  const isProtected = volume.metadata.finalizers?.includes(keys.VOLUME_FINALIZER) === true;
  const isTerminating = volume.metadata.deletionTimestamp !== undefined;

  if ((policy === 'Retain' || policy === 'Recycle') && isProtected) return { kind: 'remove-finalizer' };
  if (policy !== 'Delete') return { kind: 'ignore', reason: `reclaim policy is ${policy ?? 'not set'}` };
  if (phase === 'Bound' && !isTerminating && !isProtected) return { kind: 'add-finalizer' };
  if (!isProtected && isTerminating) return { kind: 'ignore', reason: 'already deleted in the driver: our finalizer is off' };
  if (phase !== 'Released') return { kind: 'ignore', reason: `phase is ${phase ?? 'not set'}` };
  return { kind: 'delete' };
}

/** Why a volume is not this driver's, or undefined. */
function responsibility(volume: Volume, driver: DriverNames): string | undefined {
  const provisionedBy = volume.metadata.annotations?.[keys.PROVISIONED_BY];
  const migratedTo = volume.metadata.annotations?.[keys.MIGRATED_TO];
  if (provisionedBy !== undefined) {
    return isKnownAs(driver, provisionedBy) || isKnownAs(driver, migratedTo) ? undefined : `provisioned by ${provisionedBy}`;
  }
  const maker = volume.spec.csi?.driver ?? migratedTo;
  return isKnownAs(driver, maker) ? undefined : `volume of ${maker ?? 'no CSI driver'}`;
}

/** Key of the volume record: the claim's UID where the PV has the name that we give to that UID, else the PV's own (static and foreign volumes). */
export function recordId(volume: Volume, options: Pick<ProvisioningOptions, 'volumeNamePrefix' | 'volumeNameUuidLength'>): string {
  const claimUid = volume.spec.claimRef?.uid;
  if (claimUid !== undefined && claimUid !== '' && volumeName(claimUid, options) === volume.metadata.name) return claimUid;
  return volume.metadata.uid;
}

/** The keys under which the record of a PV that is gone may be. */
export function vanishedRecordIds(
  volume: { uid: string; name: string },
  options: Pick<ProvisioningOptions, 'volumeNamePrefix'>,
): readonly string[] {
  const prefix = `${options.volumeNamePrefix}-`;
  return volume.name.startsWith(prefix) ? [volume.uid, volume.name.slice(prefix.length)] : [volume.uid];
}

/** Secret that DeleteVolume gets, by the annotations that were written at creation; undefined for none. */
export function deletionSecret(metadata: Pick<ObjectMeta, 'annotations'>): SecretRef | undefined {
  const name = metadata.annotations?.[keys.DELETION_SECRET_NAME] ?? '';
  const namespace = metadata.annotations?.[keys.DELETION_SECRET_NAMESPACE] ?? '';
  return name === '' || namespace === '' ? undefined : { name, namespace };
}
