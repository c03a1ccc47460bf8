import type {
  CreateVolumeRequest,
  CreateVolumeResponse,
  Topology,
  Volume,
} from '../csi/generated/csi_pb.ts';
import * as keys from '../kube/keys.ts';
import type { Claim, Class, CsiSource, NewVolume, VolumeSpec } from '../kube/objects.ts';
import { formatBytes } from '../kube/quantity.ts';
import { claims } from '../kube/resources.ts';
import { toInTreeVolume } from '../migration/plugins.ts';
import { catchRefusal, RefusedError } from '../rules/rule.ts';
import { omitUnset } from '../runtime/json.ts';
import type { TopologyRequirement } from '../topology/requirement.ts';
import type { SourceRef } from './data-source.ts';
import type { ProvisioningOptions } from './flags.ts';
import type { SecretRef, SecretRefs } from './secret-ref.ts';

/** A planned creation, without secret values. */
export interface PlannedRequest {
  /** Without secrets. */
  readonly request: CreateVolumeRequest;
  /** The provisioner secret, whose values CreateVolume gets. */
  readonly secret: SecretRef | undefined;
  /** Where the volume may be created, as the request says. */
  readonly requirement: TopologyRequirement | undefined;
  /** The PV as far as it is known before the driver answers. */
  readonly volume: NewVolume & { readonly spec: { readonly csi: CsiSource } };
  readonly requestedBytes: bigint;
  /** The content source, with the UID of the snapshot or claim; needed until the PV is written. */
  readonly source: (SourceRef & { readonly uid: string }) | undefined;
  /** The PV is stored in the form of the in-tree plug-in. */
  readonly isMigrated: boolean;
  /** The driver's answer says from where the volume can be reached. */
  readonly hasTopology: boolean;
}

/** The parts of a PV that are known before the driver answers. */
interface NewVolumeInput {
  readonly name: string;
  readonly claim: Claim;
  /** Translated for the driver if it is an in-tree class. */
  readonly cls: Class;
  /** The provisioner of the stored class: the in-tree plug-in if the class is migrated. */
  readonly provisioner: string;
  readonly driver: string;
  readonly fsType: string;
  readonly readOnly: boolean;
  readonly secrets: SecretRefs;
  /** Written to the volume attributes, unless the driver's answer has that key. */
  readonly identity: string;
}

/** Every field of the new PV that does not come from the driver's answer. Upstream:
 * external-provisioner pkg/controller/controller.go Provision, and
 * sig-storage-lib-external-provisioner controller/controller.go provisionClaimOperation. */
export function newVolume(input: NewVolumeInput): PlannedRequest['volume'] {
  return {
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: {
      name: input.name,
      annotations: annotationsOf(input),
      finalizers: [keys.VOLUME_FINALIZER],
    },
    spec: specOf(input),
  };
}

function annotationsOf({ provisioner, secrets }: NewVolumeInput): Record<string, string> {
  return omitUnset({
    [keys.PROVISIONED_BY]: provisioner,
    [keys.DELETION_SECRET_NAME]: secrets.Provisioner?.name ?? '',
    [keys.DELETION_SECRET_NAMESPACE]: secrets.Provisioner?.namespace ?? '',
    [keys.MODIFY_SECRET_NAME]: secrets.ControllerModify?.name,
    [keys.MODIFY_SECRET_NAMESPACE]: secrets.ControllerModify?.namespace,
  });
}

function specOf(input: NewVolumeInput) {
  const { claim, cls } = input;
  const { namespace, name, uid, resourceVersion } = claim.metadata;
  const claimRef = { kind: claims.kind, apiVersion: 'v1', namespace, name, uid, resourceVersion };
  return omitUnset({
    accessModes: claim.spec.accessModes,
    mountOptions: cls.mountOptions,
    persistentVolumeReclaimPolicy: cls.reclaimPolicy,
    volumeMode: claim.spec.volumeMode,
    claimRef: omitUnset(claimRef),
    storageClassName: cls.metadata.name,
    volumeAttributesClassName: claim.spec.volumeAttributesClassName || undefined,
    csi: csiSourceOf(input),
  });
}

function csiSourceOf(input: NewVolumeInput): CsiSource {
  const { claim, driver, fsType, readOnly, secrets, identity } = input;
  const hasFileSystem = claim.spec.volumeMode !== 'Block' && fsType !== '';
  return omitUnset({
    driver,
    volumeHandle: '',
    fsType: hasFileSystem ? fsType : undefined,
    readOnly: readOnly || undefined,
    volumeAttributes: { [keys.PROVISIONER_IDENTITY]: identity },
    controllerPublishSecretRef: secrets.ControllerPublish,
    nodeStageSecretRef: secrets.NodeStage,
    nodePublishSecretRef: secrets.NodePublish,
    controllerExpandSecretRef: secrets.ControllerExpand,
    nodeExpandSecretRef: secrets.NodeExpand,
  });
}

/** An answer of the driver. */
export interface VolumeAnswer {
  readonly handle: string;
  /** The PV to write. */
  readonly volume: NewVolume;
}

/** An answer that can't become a PV. */
export interface BadAnswer {
  readonly message: string;
  /** The handle of the volume that exists nevertheless; undefined if the answer names none. */
  readonly handle: string | undefined;
  /** Repeating the request would give the same result. */
  readonly isPermanent?: true;
  /** How upstream's message about a failed clean-up spells its first word, if not "Cleanup". */
  readonly cleanupSpelling?: 'cleanup';
}

/** csi.proto allows 128 bytes; some drivers need a few hundred (paths of resources in Azure). */
const MAX_HANDLE_BYTES = 4_096;

/** Checks the answer and makes the PV. Upstream: external-provisioner pkg/controller/controller.go
 * Provision.
 * @returns the PV, or what the driver did wrong */
export function readAnswer(
  { volume }: CreateVolumeResponse,
  planned: PlannedRequest,
): VolumeAnswer | BadAnswer {
  const handle = volume?.volumeId ?? '';
  if (volume === undefined || handle === '') {
    const what = volume === undefined ? 'without a volume' : 'with an empty volume_id';
    return {
      message: `the driver answered CreateVolume ${what}; report this to the driver’s vendor`,
      handle: undefined,
    };
  }
  const handleBytes = Buffer.byteLength(handle);
  if (handleBytes > MAX_HANDLE_BYTES)
    return {
      message:
        `the driver answered CreateVolume with a volume_id of ${handleBytes} bytes, more than ` +
        `${MAX_HANDLE_BYTES}; report this to the driver’s vendor`,
      handle: undefined,
    };
  const { capacityBytes, contentSource } = volume;
  const { requestedBytes: requested, source, isMigrated } = planned;
  if (capacityBytes !== 0n && capacityBytes < requested) {
    const message = `created volume capacity ${capacityBytes} less than`;
    return { message: `${message} requested capacity ${requested}`, handle };
  }
  if (source?.isEchoed === true && contentSource === undefined)
    return { message: 'volume content source missing', handle, cleanupSpelling: 'cleanup' };
  const complete = completeVolume(planned, volume);
  return catchRefusal<VolumeAnswer | BadAnswer>(
    () => ({ handle, volume: isMigrated ? toInTreeVolume(complete) : complete }),
    ({ message }) => ({ message, handle, isPermanent: true }),
  );
}

/** The whole PV, in the driver's form. */
function completeVolume(
  { volume, requestedBytes, hasTopology }: PlannedRequest,
  answer: Volume,
): NewVolume {
  const bytes = answer.capacityBytes === 0n ? requestedBytes : answer.capacityBytes;
  const spec: VolumeSpec = omitUnset({
    ...volume.spec,
    capacity: { storage: formatBytes(bytes) },
    nodeAffinity: hasTopology ? affinityOf(answer.accessibleTopology) : undefined,
    csi: {
      ...volume.spec.csi,
      volumeHandle: answer.volumeId,
      volumeAttributes: { ...volume.spec.csi.volumeAttributes, ...answer.volumeContext },
    },
  });
  return { ...volume, spec };
}

/** One term for each topology, one expression for each key. Upstream: external-provisioner
 * pkg/controller/topology.go GenerateVolumeNodeAffinity. */
function affinityOf(topology: readonly Topology[]): VolumeSpec['nodeAffinity'] {
  if (topology.length === 0) return undefined;
  const terms = topology
    .map(({ segments }) => Object.entries(segments))
    .filter((segments) => segments.length > 0)
    .map((segments) => ({
      matchExpressions: segments.map(([key, value]) => ({
        key,
        operator: 'In' as const,
        values: [value],
      })),
    }));
  return { required: { nodeSelectorTerms: terms } };
}

/** The flags that decide how volumes are named. */
export type NamingOptions = Pick<ProvisioningOptions, 'volumeNamePrefix' | 'volumeNameUuidLength'>;

/** Whether UIDs are cut, so that two claims may get the same name. */
export function isNameShortened({ volumeNameUuidLength }: NamingOptions): boolean {
  return volumeNameUuidLength !== -1;
}

/** The name of a claim's volume: CSI name, PV name and `${pv.name}` in templates. Upstream:
 * external-provisioner pkg/controller/controller.go makeVolumeName.
 * @throws RefusedError for an empty prefix or a claim without UID */
export function volumeName(uid: string, options: NamingOptions): string {
  const { volumeNamePrefix: prefix, volumeNameUuidLength: length } = options;
  if (prefix === '') throw new RefusedError('volume name prefix cannot be of length 0');
  if (uid === '') throw new RefusedError('corrupted PVC object, it is missing UID');
  if (length === -1) return `${prefix}-${uid}`;
  return `${prefix}-${uid.replaceAll('-', '').slice(0, length)}`;
}
