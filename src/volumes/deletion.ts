import * as keys from '../kube/keys.ts';
import type { Class, ObjectMeta, Volume } from '../kube/objects.ts';
import { translateClass } from './migration/classes.ts';
import { isInTreeVolume } from './migration/volumes.ts';
import { volumeName } from './names.ts';
import { isKnownAs, RefusedError } from './provisioning-options.ts';
import type { DriverNames, ProvisioningOptions } from './provisioning-options.ts';
import { secretRef } from './secret-ref.ts';
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

  if ((policy === 'Retain' || policy === 'Recycle') && isProtected)
    return { kind: 'remove-finalizer' };
  if (policy !== 'Delete')
    return { kind: 'ignore', reason: `reclaim policy is ${policy ?? 'not set'}` };
  if (phase === 'Bound' && !isTerminating && !isProtected) return { kind: 'add-finalizer' };
  if (!isProtected && isTerminating)
    return { kind: 'ignore', reason: 'already deleted in the driver: our finalizer is off' };
  if (phase !== 'Released') return { kind: 'ignore', reason: `phase is ${phase ?? 'not set'}` };
  return { kind: 'delete' };
}

/** Why a volume is not this driver's, or undefined. */
function responsibility(volume: Volume, driver: DriverNames): string | undefined {
  const provisionedBy = volume.metadata.annotations?.[keys.PROVISIONED_BY];
  const migratedTo = volume.metadata.annotations?.[keys.MIGRATED_TO];
  if (provisionedBy !== undefined) {
    return isKnownAs(driver, provisionedBy) || isKnownAs(driver, migratedTo)
      ? undefined
      : `provisioned by ${provisionedBy}`;
  }
  const maker = volume.spec.csi?.driver ?? migratedTo;
  return isKnownAs(driver, maker) ? undefined : `volume of ${maker ?? 'no CSI driver'}`;
}

/** Key of the volume record: the claim's UID where the PV has the name that we give to that UID,
 * else the PV's own (static and foreign volumes). */
export function recordId(
  volume: Volume,
  options: Pick<ProvisioningOptions, 'volumeNamePrefix' | 'volumeNameUuidLength'>,
): string {
  const claimUid = volume.spec.claimRef?.uid ?? '';
  if (
    claimUid !== '' &&
    options.volumeNamePrefix !== '' &&
    volumeName(claimUid, options) === volume.metadata.name
  )
    return claimUid;
  return volume.metadata.uid;
}

/** The keys under which the record of a PV that is gone may be; undefined where its name doesn't
 * tell, since UIDs are shortened in it. */
export function vanishedRecordIds(
  volume: { uid: string; name: string },
  options: Pick<ProvisioningOptions, 'volumeNamePrefix' | 'volumeNameUuidLength'>,
): readonly string[] | undefined {
  const prefix = `${options.volumeNamePrefix}-`;
  if (!volume.name.startsWith(prefix)) return [volume.uid];
  return options.volumeNameUuidLength === -1
    ? [volume.uid, volume.name.slice(prefix.length)]
    : undefined;
}

/** Secret that DeleteVolume gets, by the annotations that were written at creation; undefined for
 * none. */
export function deletionSecret(metadata: Pick<ObjectMeta, 'annotations'>): SecretRef | undefined {
  const name = metadata.annotations?.[keys.DELETION_SECRET_NAME] ?? '';
  const namespace = metadata.annotations?.[keys.DELETION_SECRET_NAMESPACE] ?? '';
  return name === '' || namespace === '' ? undefined : { name, namespace };
}

/** Which secret a deletion needs. */
export interface SecretChoice {
  readonly ref?: SecretRef;
  /** Why there is none although there should perhaps be one; for the log. */
  readonly note?: string;
}

/** The secret of a deletion: by the volume's annotations where it has both, even empty ones; else
 * by its class (spec 03 §8).
 * @throws RefusedError where the class names one that can't be resolved, or can't be translated */
export function chooseSecret(
  volume: Volume,
  driver: DriverNames,
  classOf: (name: string) => Class | undefined,
): SecretChoice {
  const { annotations = {} } = volume.metadata;
  if (
    annotations[keys.DELETION_SECRET_NAME] !== undefined &&
    annotations[keys.DELETION_SECRET_NAMESPACE] !== undefined
  ) {
    const ref = deletionSecret(volume.metadata);
    return ref === undefined ? {} : { ref };
  }
  const className = annotations[keys.BETA_STORAGE_CLASS] ?? volume.spec.storageClassName ?? '';
  if (className === '') return {};
  const stored = classOf(className);
  if (stored === undefined) return { note: `storageClass "${className}" not found` };
  const isMigrated =
    driver.inTreeName !== undefined &&
    stored.provisioner === driver.inTreeName &&
    isInTreeVolume(volume);
  const cls = isMigrated ? translateClass(stored, stored.provisioner) : stored;
  if (volume.spec.claimRef === undefined)
    return { note: 'no claimRef, so its class’s secret has no claim to be named by' };
  const ref = secretOfClass(cls, volume.metadata.name, volume.spec.claimRef);
  return ref === undefined ? {} : { ref };
}

function secretOfClass(
  cls: Class,
  volumeName: string,
  { name = '', namespace = '' }: { name?: string; namespace?: string },
): SecretRef | undefined {
  try {
    return secretRef('Provisioner', cls.parameters ?? {}, {
      volumeName,
      claim: { name, namespace, annotations: {} },
    });
  } catch (cause) {
    if (!(cause instanceof RefusedError)) throw cause;
    throw new RefusedError(
      `failed to get secretreference for volume ${volumeName}: ${cause.message}`,
      { cause },
    );
  }
}
