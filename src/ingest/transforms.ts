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

/* Transforms cut each object down to the fields that triage reads before it is cached. A bound
 * claim takes a few hundred bytes this way instead of two thousand. The reflector has checked that
 * a raw object is of its resource and has metadata; the API server is trusted for the rest. */

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

/** Shared by all claims of a phase, so that each claim stores only a pointer. */
const STATUS: Readonly<Record<string, NonNullable<Claim['status']>>> = {
  Pending: { phase: 'Pending' },
  Bound: { phase: 'Bound' },
  Lost: { phase: 'Lost' },
};

/** The content source is kept only while the claim is pending. */
export function transformClaim(raw: unknown): Claim {
  const claim = raw as Claim;
  const { metadata, spec } = claim;
  const { volumeName, storageClassName } = spec;
  const status = STATUS[claim.status?.phase ?? ''];
  return {
    metadata: {
      ...transformMeta(metadata, CLAIM_ANNOTATIONS),
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

export function transformVolume(raw: unknown): Volume {
  const volume = raw as Volume;
  const { metadata, spec, status } = volume;
  const isInTree = isInTreeVolume(volume);
  const { claimRef, csi, persistentVolumeReclaimPolicy } = spec;
  return {
    metadata: {
      ...transformMeta(metadata, VOLUME_ANNOTATIONS),
      ...finalizersOf(metadata, VOLUME_FINALIZERS),
      ...(spec.gcePersistentDisk === undefined ? {} : zoneLabelsOf(metadata)),
    },
    spec: {
      ...(claimRef?.uid === undefined ? {} : { claimRef: transformClaimRef(claimRef, isInTree) }),
      ...(csi === undefined ? {} : { csi: { driver: csi.driver, volumeHandle: csi.volumeHandle } }),
      ...(isInTree ? inTreeSourceOf(spec) : {}),
      ...(persistentVolumeReclaimPolicy === undefined ? {} : { persistentVolumeReclaimPolicy }),
    },
    ...(status?.phase === undefined ? {} : { status: { phase: status.phase } }),
  };
}

/** An in-tree source may name a secret without a namespace, which means the claim's. */
function transformClaimRef(
  { uid, namespace }: ObjectReference,
  isInTree: boolean,
): ObjectReference {
  return {
    ...(uid === undefined ? {} : { uid }),
    ...(isInTree && namespace !== undefined ? { namespace } : {}),
  };
}

/** GCE disks of the same name differ by zone. */
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

/** Leaves out the parameters, which only jobs need; they read the class afresh. */
export function transformClass(raw: unknown): Class {
  const { metadata, provisioner, volumeBindingMode } = raw as Class;
  return {
    metadata: transformMeta(metadata, []),
    provisioner,
    ...(volumeBindingMode === undefined ? {} : { volumeBindingMode }),
  };
}

/** Keeps the name and version of any object, which is all that the wait watch needs. */
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

function transformMeta(metadata: ObjectMeta, wanted: readonly string[]): ObjectMeta {
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
