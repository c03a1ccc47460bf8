import type { Json, JsonObject } from './json-value.ts';

/** Metadata as stored: what the server fills in is always there. */
export interface Metadata extends JsonObject {
  name: string;
  namespace?: string;
  generateName?: string;
  uid: string;
  resourceVersion: string;
  generation?: number;
  creationTimestamp: string;
  deletionTimestamp?: string;
  deletionGracePeriodSeconds?: number;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: Json[];
  finalizers?: string[];
  managedFields?: Json[];
}

/** One API object. `kind` and `apiVersion` come first and `metadata` third, because lists cut the
 * first two off the encoded bytes. */
export interface KubeObject extends JsonObject {
  kind: string;
  apiVersion: string;
  metadata: Metadata;
}

/** 'namespace/name', or 'name' for what lives in no namespace: the order of lists is the order of
 * these keys. */
export function keyOf(namespace: string | undefined, name: string): string {
  return namespace === undefined ? name : `${namespace}/${name}`;
}
