import * as keys from '../../kube/keys.ts';
import type { Claim, Class, ObjectMeta, Volume } from '../../kube/objects.ts';
import { isInTreeVolume, PLUGINS } from '../../migration/plugins.ts';
import { isPending } from '../../volumes/data-source.ts';
import { isNew, provisionerOf } from '../../volumes/eligibility.ts';

/* Transforms cut each object down to the fields that the predicates read, before it is cached. So a
 * bound claim takes a few hundred bytes instead of two thousand. The reflector has checked that a
 * raw object is of its resource and has metadata; the API server is trusted for the rest. */

const CLAIM_ANNOTATIONS = [
  keys.STORAGE_PROVISIONER,
  keys.BETA_STORAGE_PROVISIONER,
  keys.BETA_STORAGE_CLASS,
  keys.SELECTED_NODE,
  keys.MIGRATED_TO,
];
const CLAIM_FINALIZERS = [keys.CLONE_PROTECTION];
const VOLUME_ANNOTATIONS = [keys.PROVISIONED_BY, keys.MIGRATED_TO];
const VOLUME_FINALIZERS = [keys.VOLUME_FINALIZER];
const IN_TREE_SOURCES = PLUGINS.map(({ source }) => source);

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
  const status = STATUS[claim.status?.phase ?? ''];
  return {
    metadata: transformMeta(metadata, CLAIM_ANNOTATIONS, CLAIM_FINALIZERS),
    spec: {
      ...pick(spec, ['volumeName', 'storageClassName']),
      ...(isPending(claim) ? pick(spec, ['dataSource', 'dataSourceRef']) : {}),
    },
    ...(status === undefined ? {} : { status }),
  };
}

/** A claim that a watch has shown, or that was read because a notice named it. */
export interface WatchedClaim extends Claim {
  /** JSON of the whole claim, for the journal; absent where it has to be read for that. */
  readonly copy?: string;
}

/** Longer ones are not kept in memory. */
const MAX_COPY_LENGTH = 4_096;

export function transformWatchedClaim(raw: unknown): WatchedClaim {
  const claim = transformClaim(raw);
  if (!isNew(claim) || provisionerOf(claim) === undefined) return claim;
  const { metadata, ...others } = raw as Claim;
  const copy = JSON.stringify({ ...others, metadata: { ...metadata, managedFields: undefined } });
  return copy.length > MAX_COPY_LENGTH ? claim : { ...claim, copy };
}

export function transformVolume(raw: unknown): Volume {
  const volume = raw as Volume;
  const { metadata, spec, status } = volume;
  const isInTree = isInTreeVolume(volume);
  const { claimRef, csi } = spec;
  const { labels } = metadata;
  // An in-tree source may name a secret without a namespace, which means the claim's.
  const refFields = isInTree ? (['uid', 'namespace'] as const) : (['uid'] as const);
  return {
    metadata: {
      ...transformMeta(metadata, VOLUME_ANNOTATIONS, VOLUME_FINALIZERS),
      // GCE disks of the same name differ by zone.
      ...(spec.gcePersistentDisk === undefined || labels === undefined
        ? {}
        : { labels: pick(labels, [keys.ZONE, keys.BETA_ZONE]) }),
    },
    spec: {
      ...(claimRef?.uid === undefined ? {} : { claimRef: pick(claimRef, refFields) }),
      ...(csi === undefined ? {} : { csi: pick(csi, ['driver', 'volumeHandle']) }),
      ...(isInTree ? pick(spec, IN_TREE_SOURCES) : {}),
      ...pick(spec, ['persistentVolumeReclaimPolicy']),
    },
    ...(status?.phase === undefined ? {} : { status: { phase: status.phase } }),
  };
}

/** Keeps what planning needs, for the journal. */
export function transformClass(raw: unknown): Class {
  const cls = raw as Class;
  return { ...cls, metadata: transformMeta(cls.metadata, keys.CLASS_SETTINGS) };
}

function transformMeta(
  metadata: ObjectMeta,
  annotationKeys: readonly string[] = [],
  finalizerNames: readonly string[] = [],
): ObjectMeta {
  const annotations = pick(metadata.annotations ?? {}, annotationKeys);
  const finalizers = metadata.finalizers?.filter((name) => finalizerNames.includes(name)) ?? [];
  return {
    ...pick(metadata, [
      'name',
      'uid',
      'resourceVersion',
      'namespace',
      'creationTimestamp',
      'deletionTimestamp',
    ]),
    ...(Object.keys(annotations).length === 0 ? {} : { annotations }),
    ...(finalizers.length === 0 ? {} : { finalizers }),
  };
}

/** The given fields of an object, without those that are not set. */
function pick<T extends object, K extends keyof T>(object: T, fields: readonly K[]): Pick<T, K> {
  const picked: Partial<Pick<T, K>> = {};
  for (const field of fields)
    if (object[field] !== undefined && object[field] !== null) picked[field] = object[field];
  return picked as Pick<T, K>;
}
