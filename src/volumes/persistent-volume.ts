import type { CreateVolumeResponse } from '../csi/generated/csi_pb.ts';
import * as keys from '../kube/keys.ts';
import type { Claim, Class, CsiSource, NewVolume, VolumeSpec } from '../kube/objects.ts';
import { formatBytes } from '../kube/quantity.ts';
import type { SourceRef } from './data-source.ts';
import { toInTreeVolume } from './migration/volumes.ts';
import { onRefusal } from './provisioning-options.ts';
import type { SecretPurpose, SecretRef } from './secret-ref.ts';

/** The PV as far as it is known before the driver answers; stored in the volume record, so JSON and
 * without secrets. */
export interface VolumeSkeleton {
  readonly volume: NewVolume & { readonly spec: { readonly csi: CsiSource } };
  /** Bytes that were asked for, as text: a Number is exact only to 8 PiB. */
  readonly requestedBytes: string;
  /** Goes into the volume attributes, below what the driver says. */
  readonly identity: string;
  /** What the volume is filled from; in use as long as the record is open. */
  readonly source?: SkeletonSource;
  /** The PV is stored in the form of the in-tree plug-in (spec 07 §6). */
  readonly isMigrated?: true;
  /** The driver's answer says where the volume can be reached from. */
  readonly hasTopology?: true;
}

/** The object that a volume is filled from. */
export interface SkeletonSource {
  readonly resource: 'volumesnapshots' | 'persistentvolumeclaims';
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** The driver must name a content source in its answer (spec 02 §8.3). */
  readonly isEchoed: boolean;
  /** Our finalizer comes off the snapshot once the PV is written (spec 02 §9). */
  readonly isReleased: boolean;
}

export interface SkeletonInput {
  readonly name: string;
  readonly claim: Claim;
  readonly cls: Class;
  readonly className: string;
  /** Of the class as it is stored: the in-tree name where the class is migrated. */
  readonly provisioner: string;
  readonly driver: string;
  readonly fsType: string;
  readonly requestedBytes: bigint;
  readonly readOnly: boolean;
  readonly identity: string;
  readonly secrets: Readonly<Partial<Record<SecretPurpose, SecretRef>>>;
  readonly attributesClass: string | undefined;
  readonly isMigrated: boolean;
  readonly hasTopology: boolean;
  readonly source?: SourceRef & { readonly uid: string };
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
  const spec = {
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
    ...(input.attributesClass === undefined
      ? {}
      : { volumeAttributesClassName: input.attributesClass }),
    csi,
  };
  const annotations = {
    [keys.PROVISIONED_BY]: input.provisioner,
    [keys.DELETION_SECRET_NAME]: secrets.Provisioner?.name ?? '',
    [keys.DELETION_SECRET_NAMESPACE]: secrets.Provisioner?.namespace ?? '',
    ...(secrets.ControllerModify
      ? {
          [keys.MODIFY_SECRET_NAME]: secrets.ControllerModify.name,
          [keys.MODIFY_SECRET_NAMESPACE]: secrets.ControllerModify.namespace,
        }
      : {}),
  };
  return {
    requestedBytes: input.requestedBytes.toString(),
    identity: input.identity,
    ...(input.source === undefined ? {} : { source: skeletonSource(input.source) }),
    ...(input.isMigrated ? { isMigrated: true } : {}),
    ...(input.hasTopology ? { hasTopology: true } : {}),
    volume: {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name: input.name, annotations, finalizers: [keys.VOLUME_FINALIZER] },
      spec,
    },
  };
}

function skeletonSource({
  kind,
  namespace,
  name,
  uid,
  isEchoed,
  isReleased,
}: SourceRef & { readonly uid: string }): SkeletonSource {
  const resource = kind === 'VolumeSnapshot' ? 'volumesnapshots' : 'persistentvolumeclaims';
  return { resource, namespace, name, uid, isEchoed, isReleased };
}

/** What of the driver's answer the PV needs; stored in the record when only the PV write failed. */
export interface VolumeAnswer {
  readonly handle: string;
  readonly context: Readonly<Record<string, string>>;
  /** Bytes, as text; "0" where the driver leaves it open. */
  readonly capacityBytes: string;
  readonly topology: readonly Readonly<Record<string, string>>[];
}

/** An answer that no PV can be made of. */
export interface BadAnswer {
  readonly message: string;
  /** Of the volume that was made all the same; undefined: the driver told of none. */
  readonly handle: string | undefined;
  /** Asking again would end the same. */
  readonly isHopeless?: true;
  /** As upstream spells it, where it is not "Cleanup". */
  readonly cleanupWord?: 'cleanup';
}

/** The answer as plain data, or what the driver did wrong (spec 02 §8.2, §8.3; 09). */
export function readAnswer(
  response: CreateVolumeResponse,
  skeleton: VolumeSkeleton,
): VolumeAnswer | BadAnswer {
  const { volume } = response;
  const blame = (what: string): BadAnswer => ({
    message: `the driver answered CreateVolume ${what}; report this to the driver’s vendor`,
    handle: undefined,
  });
  if (volume === undefined) return blame('without a volume');
  const handle = volume.volumeId;
  if (handle === '') return blame('with an empty volume_id');
  const requested = BigInt(skeleton.requestedBytes);
  if (volume.capacityBytes !== 0n && volume.capacityBytes < requested) {
    return {
      message: `created volume capacity ${volume.capacityBytes} less than requested capacity ${requested}`,
      handle,
    };
  }
  if (skeleton.source?.isEchoed === true && volume.contentSource === undefined)
    return { message: 'volume content source missing', handle, cleanupWord: 'cleanup' };
  const answer: VolumeAnswer = {
    handle,
    context: { ...volume.volumeContext },
    capacityBytes: volume.capacityBytes.toString(),
    topology: volume.accessibleTopology.map(({ segments }) => ({ ...segments })),
  };
  if (skeleton.isMigrated !== true) return answer;
  return onRefusal<VolumeAnswer | BadAnswer>(
    () => {
      completeVolume(skeleton, answer);
      return answer;
    },
    ({ message }) => ({ message, handle, isHopeless: true }),
  );
}

/** The whole PV.
 * @throws RefusedError where a migrated one has no in-tree form */
export function completeVolume(skeleton: VolumeSkeleton, answer: VolumeAnswer): NewVolume {
  const { volume } = skeleton;
  const bytes = answer.capacityBytes === '0' ? skeleton.requestedBytes : answer.capacityBytes;
  const csi: CsiSource = {
    ...volume.spec.csi,
    volumeHandle: answer.handle,
    volumeAttributes: { [keys.PROVISIONER_IDENTITY]: skeleton.identity, ...answer.context },
  };
  const nodeAffinity = skeleton.hasTopology === true ? affinityOf(answer.topology) : undefined;
  const spec: VolumeSpec = {
    ...volume.spec,
    capacity: { storage: formatBytes(BigInt(bytes)) },
    ...(nodeAffinity === undefined ? {} : { nodeAffinity }),
    csi,
  };
  const complete: NewVolume = { ...volume, spec };
  return skeleton.isMigrated === true ? toInTreeVolume(complete) : complete;
}

/** One term per topology, one expression per segment (spec 04 A7). */
function affinityOf(topology: VolumeAnswer['topology']): VolumeSpec['nodeAffinity'] {
  if (topology.length === 0) return undefined;
  const terms = topology
    .map((segments) =>
      Object.entries(segments).map(([key, value]) => ({
        key,
        operator: 'In' as const,
        values: [value],
      })),
    )
    .filter((matchExpressions) => matchExpressions.length > 0)
    .map((matchExpressions) => ({ matchExpressions }));
  return { required: { nodeSelectorTerms: terms } };
}
