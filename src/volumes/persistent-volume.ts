import type { CreateVolumeResponse } from '../csi/generated/csi_pb.ts';
import * as keys from '../kube/keys.ts';
import type { Claim, Class, CsiSource, NewVolume, VolumeSpec } from '../kube/objects.ts';
import { formatBytes } from '../kube/quantity.ts';
import type { SecretPurpose, SecretRef } from './secret-ref.ts';

/** The PV as far as it is known before the driver answers; stored in the volume record, so JSON and without secrets. */
export interface VolumeSkeleton {
  readonly volume: NewVolume;
  /** Bytes that were asked for, as text: a Number is exact only to 8 PiB. */
  readonly requestedBytes: string;
  /** Goes into the volume attributes, below what the driver says. */
  readonly identity: string;
}

export interface SkeletonInput {
  readonly name: string;
  readonly claim: Claim;
  readonly cls: Class;
  readonly className: string;
  readonly driver: string;
  readonly fsType: string;
  readonly requestedBytes: bigint;
  readonly readOnly: boolean;
  readonly identity: string;
  readonly secrets: Readonly<Partial<Record<SecretPurpose, SecretRef>>>;
}

/** Every field of the new PV that doesn't come from the driver (spec 02 §9). */
export function volumeSkeleton(input: SkeletonInput): VolumeSkeleton {
  const { claim, cls, secrets } = input;
  const isBlock = claim.spec.volumeMode === 'Block';
  const csi: CsiSource = {
    driver: input.driver,
    volumeHandle: '',
    ...(isBlock || input.fsType === '' ? {} : { fsType: input.fsType }),
    ...(input.readOnly ? { readOnly: true } : {}),
    ...(secrets.ControllerPublish ? { controllerPublishSecretRef: secrets.ControllerPublish } : {}),
    ...(secrets.NodeStage ? { nodeStageSecretRef: secrets.NodeStage } : {}),
    ...(secrets.NodePublish ? { nodePublishSecretRef: secrets.NodePublish } : {}),
    ...(secrets.ControllerExpand ? { controllerExpandSecretRef: secrets.ControllerExpand } : {}),
    ...(secrets.NodeExpand ? { nodeExpandSecretRef: secrets.NodeExpand } : {}),
  };
  const spec: VolumeSpec = {
    ...(claim.spec.accessModes ? { accessModes: claim.spec.accessModes } : {}),
    ...(cls.mountOptions ? { mountOptions: cls.mountOptions } : {}),
    ...(cls.reclaimPolicy ? { persistentVolumeReclaimPolicy: cls.reclaimPolicy } : {}),
    ...(claim.spec.volumeMode ? { volumeMode: claim.spec.volumeMode } : {}),
    claimRef: {
      kind: 'PersistentVolumeClaim',
      apiVersion: 'v1',
      ...(claim.metadata.namespace === undefined ? {} : { namespace: claim.metadata.namespace }),
      name: claim.metadata.name,
      uid: claim.metadata.uid,
      resourceVersion: claim.metadata.resourceVersion,
    },
    storageClassName: input.className,
    csi,
  };
  const annotations = {
    [keys.PROVISIONED_BY]: cls.provisioner,
    [keys.DELETION_SECRET_NAME]: secrets.Provisioner?.name ?? '',
    [keys.DELETION_SECRET_NAMESPACE]: secrets.Provisioner?.namespace ?? '',
    ...(secrets.ControllerModify
      ? { [keys.MODIFY_SECRET_NAME]: secrets.ControllerModify.name, [keys.MODIFY_SECRET_NAMESPACE]: secrets.ControllerModify.namespace }
      : {}),
  };
  return {
    requestedBytes: input.requestedBytes.toString(),
    identity: input.identity,
    volume: {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name: input.name, annotations, finalizers: [keys.VOLUME_FINALIZER] },
      spec,
    },
  };
}

/** What of the driver's answer the PV needs; stored in the record when only the PV write failed. */
export interface VolumeAnswer {
  readonly handle: string;
  readonly context: Readonly<Record<string, string>>;
  /** Bytes, as text; "0" where the driver leaves it open. */
  readonly capacityBytes: string;
  readonly topology: readonly Readonly<Record<string, string>>[];
}

/** The answer as plain data, or a text that says what the driver did wrong (spec 02 §8.2, §8.3; 09). */
export function readAnswer(response: CreateVolumeResponse, skeleton: VolumeSkeleton): VolumeAnswer | string {
  const { volume } = response;
  if (volume === undefined) return 'the driver answered CreateVolume without a volume; report this to the driver’s vendor';
  if (volume.volumeId === '') return 'the driver answered CreateVolume with an empty volume_id; report this to the driver’s vendor';
  const requested = BigInt(skeleton.requestedBytes);
  if (volume.capacityBytes !== 0n && volume.capacityBytes < requested) {
    return `created volume capacity ${volume.capacityBytes} less than requested capacity ${requested}`;
  }
  return {
    handle: volume.volumeId,
    context: { ...volume.volumeContext },
    capacityBytes: volume.capacityBytes.toString(),
    topology: volume.accessibleTopology.map(({ segments }) => ({ ...segments })),
  };
}

/** The whole PV. */
export function completeVolume(skeleton: VolumeSkeleton, answer: VolumeAnswer): NewVolume {
  const { volume } = skeleton;
  const bytes = answer.capacityBytes === '0' ? skeleton.requestedBytes : answer.capacityBytes;
  const csi: CsiSource = {
    ...(volume.spec.csi ?? { driver: '' }),
    volumeHandle: answer.handle,
    volumeAttributes: { [keys.PROVISIONER_IDENTITY]: skeleton.identity, ...answer.context },
  };
  return { ...volume, spec: { ...volume.spec, capacity: { storage: formatBytes(BigInt(bytes)) }, csi } };
}
