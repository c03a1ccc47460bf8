import type { Json, JsonObject } from './json-value.ts';

/** Metadata of a stored object; the members that the server sets are always present. */
export interface Metadata extends JsonObject {
  name: string;
  namespace?: string;
  generateName?: string;
  uid: string;
  resourceVersion: string;
  creationTimestamp: string;
  deletionTimestamp?: string;
  deletionGracePeriodSeconds?: number;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: Json[];
  finalizers?: string[];
}

/** One API object. `kind` and `apiVersion` are the first members, because lists cut these two off
 * the encoded object. */
export interface KubeObject extends JsonObject {
  kind: string;
  apiVersion: string;
  metadata: Metadata;
}

/** 'namespace/name', or 'name' for cluster-scoped objects. Lists are ordered by these keys. */
export function keyOf(namespace: string | undefined, name: string): string {
  return namespace === undefined ? name : `${namespace}/${name}`;
}
