import type { Named } from './api-error.ts';
import { ageColumn, nameColumn } from './columns.ts';
import type { Json } from './json-value.ts';
import type { KubeObject } from './kube-object.ts';

/** A column of `kubectl get`. Priority 1 is shown only with `-o wide`. */
export interface Column {
  readonly name: string;
  readonly type: 'string' | 'integer';
  readonly format?: 'name';
  readonly priority?: number;
  readonly cell: (object: KubeObject, nowMs: number) => Json;
}

/** What rules may read besides the object itself. */
export interface RuleContext {
  readonly nowMs: number;
  /** All objects of a resource. */
  list(resource: Resource): Iterable<KubeObject>;
}

/** What is wrong with an object: a field, and why. */
export interface Problem {
  readonly field: string;
  readonly why: string;
}

/** The definition of a kind. Its functions may change `object`, but not `old`, which is stored. */
export interface Resource extends Named {
  readonly version: string;
  readonly singular: string;
  readonly shortNames: readonly string[];
  readonly namespaced: boolean;
  readonly columns: readonly Column[];
  /** Has the subresource /status: writes of the status and of the rest are separate. */
  readonly hasStatus?: boolean;
  /** PUT creates an object that does not exist. */
  readonly createsOnUpdate?: boolean;
  /** Sets defaults, at creation and at each update. */
  readonly applyDefaults?: (object: KubeObject) => void;
  /** Sets what the server sets at creation. */
  readonly beforeCreate?: (object: KubeObject, context: RuleContext) => void;
  /** Sets what the server sets when an object changes. */
  readonly beforeUpdate?: (object: KubeObject, old: KubeObject, context: RuleContext) => void;
  /** What is wrong with a new or changed object; undefined if nothing is. */
  readonly validate?: (object: KubeObject) => Problem | undefined;
  /** What is wrong with a change; undefined if nothing is. Not called for the status. */
  readonly validateUpdate?: (object: KubeObject, old: KubeObject) => Problem | undefined;
}

/** A kind, in a namespace and without rules unless `more` says otherwise.
 * @param apiVersion  `v1` or `group/version` */
export function kindOf(
  apiVersion: string,
  [kind, plural, ...shortNames]: readonly [kind: string, plural: string, ...shortNames: string[]],
  more: Partial<Resource> = {},
): Resource {
  const [version = '', group = ''] = apiVersion.split('/').toReversed();
  return {
    group,
    version,
    plural,
    singular: kind.toLowerCase(),
    kind,
    shortNames,
    namespaced: true,
    columns: [nameColumn, ageColumn],
    ...more,
  };
}

/** `v1` or `group/version`. */
export function apiVersionOf(resource: {
  readonly group: string;
  readonly version: string;
}): string {
  return resource.group === '' ? resource.version : `${resource.group}/${resource.version}`;
}

/** The name of a resource in the store: `persistentvolumes`, `storageclasses.storage.k8s.io`. */
export function collectionName(resource: Named): string {
  return resource.group === '' ? resource.plural : `${resource.plural}.${resource.group}`;
}
