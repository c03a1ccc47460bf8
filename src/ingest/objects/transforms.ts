import * as keys from '../../kube/keys.ts';
import type { Claim, Class, ObjectMeta, Volume } from '../../kube/objects.ts';
import { isFields } from '../../runtime/json.ts';
import { isNew, provisionerOf } from '../../volumes/eligibility.ts';

/* Transforms cut each object's metadata down to what the predicates read, before it is cached: a
 * user may give each claim 256 kB of annotations. The reflector has checked that a raw object is of
 * its resource and has metadata; the API server is trusted for the rest. */

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

export function transformClaim(raw: unknown): Claim {
  return cut(raw as Claim, CLAIM_ANNOTATIONS, CLAIM_FINALIZERS);
}

/** A claim from the watch, or read after a notice. */
export interface WatchedClaim extends Claim {
  /** JSON of the whole claim, for the journal; if absent, ingest reads the claim for it. */
  readonly copy?: string;
}

/** Longer copies are not kept in memory. */
const MAX_COPY_LENGTH = 4_096;

export function transformWatchedClaim(raw: unknown): WatchedClaim {
  const claim = transformClaim(raw);
  if (!isNew(claim) || provisionerOf(claim) === undefined) return claim;
  const { metadata, ...others } = raw as Claim;
  const copy = JSON.stringify({ ...others, metadata: { ...metadata, managedFields: undefined } });
  return copy.length > MAX_COPY_LENGTH ? claim : { ...claim, copy };
}

export function transformVolume(raw: unknown): Volume {
  return cut(raw as Volume, VOLUME_ANNOTATIONS, VOLUME_FINALIZERS);
}

/** Keeps what planning needs, for the journal. */
export function transformClass(raw: unknown): Class {
  const cls = raw as Class;
  return { ...cls, metadata: transformMeta(cls.metadata, keys.CLASS_SETTINGS) };
}

/** @throws Error for an object without a spec */
function cut<T extends Claim | Volume>(
  object: T,
  annotationKeys: readonly string[],
  finalizerNames: readonly string[],
): T {
  if (!isFields(object.spec)) throw new Error('it has no spec');
  return { ...object, metadata: transformMeta(object.metadata, annotationKeys, finalizerNames) };
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
