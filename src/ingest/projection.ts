import * as keys from '../kube/keys.ts';
import type { Claim, Class, ObjectMeta, Volume } from '../kube/objects.ts';

/* What the watched views keep of each object: the fields that triage reads. A bound claim costs a few hundred bytes this way, not two thousand. */

const CLAIM_ANNOTATIONS = [
  keys.STORAGE_PROVISIONER,
  keys.BETA_STORAGE_PROVISIONER,
  keys.BETA_STORAGE_CLASS,
  keys.SELECTED_NODE,
  keys.MIGRATED_TO,
];
const VOLUME_ANNOTATIONS = [keys.PROVISIONED_BY, keys.MIGRATED_TO];

/** The claim that triage sees. */
export function projectClaim(raw: unknown): Claim {
  // The reflector has checked that it is an object of this resource with metadata; the API server vouches for the rest.
  const { metadata, spec } = raw as Claim;
  const { volumeName, storageClassName } = spec;
  return {
    metadata: {
      ...projectMeta(metadata, CLAIM_ANNOTATIONS),
      ...(metadata.finalizers?.includes(keys.CLAIM_FINALIZER) === true ? { finalizers: [keys.CLAIM_FINALIZER] } : {}),
    },
    spec: { ...(volumeName === undefined ? {} : { volumeName }), ...(storageClassName === undefined ? {} : { storageClassName }) },
  };
}

/** The volume that triage sees. */
export function projectVolume(raw: unknown): Volume {
  const { metadata, spec, status } = raw as Volume;
  const { claimRef, csi, persistentVolumeReclaimPolicy } = spec;
  return {
    metadata: {
      ...projectMeta(metadata, VOLUME_ANNOTATIONS),
      ...(metadata.finalizers?.includes(keys.VOLUME_FINALIZER) === true ? { finalizers: [keys.VOLUME_FINALIZER] } : {}),
    },
    spec: {
      ...(claimRef?.uid === undefined ? {} : { claimRef: { uid: claimRef.uid } }),
      ...(csi === undefined ? {} : { csi: { driver: csi.driver, volumeHandle: csi.volumeHandle } }),
      ...(persistentVolumeReclaimPolicy === undefined ? {} : { persistentVolumeReclaimPolicy }),
    },
    ...(status?.phase === undefined ? {} : { status: { phase: status.phase } }),
  };
}

/** The class that triage sees; its parameters are the jobs' business. */
export function projectClass(raw: unknown): Class {
  const { metadata, provisioner, volumeBindingMode } = raw as Class;
  return { metadata: projectMeta(metadata, []), provisioner, ...(volumeBindingMode === undefined ? {} : { volumeBindingMode }) };
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
