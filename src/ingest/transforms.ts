import * as keys from '../kube/keys.ts';
import type {
  Claim,
  Class,
  ClaimSpec,
  ObjectMeta,
  ObjectReference,
  Volume,
  VolumeSpec,
} from '../kube/objects.ts';
import type { Transformed } from '../kube/reflector.ts';
import { PLUGINS } from '../volumes/migration/plugins.ts';
import { isInTreeVolume } from '../volumes/migration/volumes.ts';
import { isPending } from '../volumes/source-use.ts';

/* What the watched views keep of each object: the fields that triage reads. A bound claim costs a
 * few hundred bytes this way, not two thousand. */

const CLAIM_ANNOTATIONS = [
  keys.STORAGE_PROVISIONER,
  keys.BETA_STORAGE_PROVISIONER,
  keys.BETA_STORAGE_CLASS,
  keys.SELECTED_NODE,
  keys.MIGRATED_TO,
];
const CLAIM_FINALIZERS = [keys.CLAIM_FINALIZER, keys.CLONE_PROTECTION];
const VOLUME_ANNOTATIONS = [keys.PROVISIONED_BY, keys.MIGRATED_TO];
const VOLUME_FINALIZERS = [keys.VOLUME_FINALIZER];

/** One object for all claims of a phase: a field costs a pointer then. */
const STATUS: Readonly<Record<string, NonNullable<Claim['status']>>> = {
  Pending: { phase: 'Pending' },
  Bound: { phase: 'Bound' },
  Lost: { phase: 'Lost' },
};

/** The claim that triage sees; what it is to be filled from only as long as it waits for that. */
export function transformClaim(raw: unknown): Claim {
  // The reflector has checked that it is an object of this resource with metadata; the API server
  // vouches for the rest.
  const claim = raw as Claim;
  const { metadata, spec } = claim;
  const { volumeName, storageClassName } = spec;
  const status = STATUS[claim.status?.phase ?? ''];
  return {
    metadata: {
      ...projectMeta(metadata, CLAIM_ANNOTATIONS),
      ...finalizersOf(metadata, CLAIM_FINALIZERS),
    },
    spec: {
      ...(volumeName === undefined ? {} : { volumeName }),
      ...(storageClassName === undefined ? {} : { storageClassName }),
      ...(isPending(claim) ? sourcesOf(spec) : {}),
    },
    ...(status === undefined ? {} : { status }),
  };
}

function sourcesOf({
  dataSource,
  dataSourceRef,
}: ClaimSpec): Pick<ClaimSpec, 'dataSource' | 'dataSourceRef'> {
  return { ...(dataSource ? { dataSource } : {}), ...(dataSourceRef ? { dataSourceRef } : {}) };
}

/** The volume that triage sees. */
export function transformVolume(raw: unknown): Volume {
  const volume = raw as Volume;
  const { metadata, spec, status } = volume;
  const isInTree = isInTreeVolume(volume);
  const { claimRef, csi, persistentVolumeReclaimPolicy } = spec;
  return {
    metadata: {
      ...projectMeta(metadata, VOLUME_ANNOTATIONS),
      ...finalizersOf(metadata, VOLUME_FINALIZERS),
      ...(spec.gcePersistentDisk === undefined ? {} : zoneLabelsOf(metadata)),
    },
    spec: {
      ...(claimRef?.uid === undefined ? {} : { claimRef: projectClaimRef(claimRef, isInTree) }),
      ...(csi === undefined ? {} : { csi: { driver: csi.driver, volumeHandle: csi.volumeHandle } }),
      ...(isInTree ? inTreeSourceOf(spec) : {}),
      ...(persistentVolumeReclaimPolicy === undefined ? {} : { persistentVolumeReclaimPolicy }),
    },
    ...(status?.phase === undefined ? {} : { status: { phase: status.phase } }),
  };
}

/** Where an in-tree source names a secret without its namespace, the claim's is meant. */
function projectClaimRef({ uid, namespace }: ObjectReference, isInTree: boolean): ObjectReference {
  return {
    ...(uid === undefined ? {} : { uid }),
    ...(isInTree && namespace !== undefined ? { namespace } : {}),
  };
}

/** What tells GCE's disks of one name apart. */
function zoneLabelsOf({ labels = {} }: ObjectMeta): Pick<ObjectMeta, 'labels'> {
  const zones = [keys.ZONE, keys.BETA_ZONE].flatMap((key) =>
    labels[key] === undefined ? [] : [[key, labels[key]] as const],
  );
  return zones.length === 0 ? {} : { labels: Object.fromEntries(zones) };
}

function inTreeSourceOf(spec: VolumeSpec): Partial<VolumeSpec> {
  return Object.fromEntries(
    PLUGINS.flatMap(({ source }) =>
      spec[source] === undefined ? [] : [[source, spec[source]] as const],
    ),
  );
}

/** The class that triage sees; its parameters are the jobs' business. */
export function transformClass(raw: unknown): Class {
  const { metadata, provisioner, volumeBindingMode } = raw as Class;
  return {
    metadata: projectMeta(metadata, []),
    provisioner,
    ...(volumeBindingMode === undefined ? {} : { volumeBindingMode }),
  };
}

/** Name and version of any object: all that waking keys takes. */
export function transformName(raw: unknown): Transformed {
  const { name, namespace, uid, resourceVersion } = (raw as Transformed).metadata;
  return {
    metadata: { name, uid, resourceVersion, ...(namespace === undefined ? {} : { namespace }) },
  };
}

function finalizersOf(
  metadata: ObjectMeta,
  wanted: readonly string[],
): Pick<ObjectMeta, 'finalizers'> {
  const finalizers = metadata.finalizers?.filter((finalizer) => wanted.includes(finalizer)) ?? [];
  return finalizers.length === 0 ? {} : { finalizers };
}

function projectMeta(metadata: ObjectMeta, wanted: readonly string[]): ObjectMeta {
  const { name, namespace, uid, resourceVersion, deletionTimestamp } = metadata;
  const annotations: Record<string, string> = {};
  for (const key of wanted) {
    const value = metadata.annotations?.[key];
    if (value !== undefined) annotations[key] = value;
  }
  return {
    name,
    uid,
    resourceVersion,
    ...(namespace === undefined ? {} : { namespace }),
    ...(deletionTimestamp === undefined ? {} : { deletionTimestamp }),
    ...(Object.keys(annotations).length > 0 ? { annotations } : {}),
  };
}
