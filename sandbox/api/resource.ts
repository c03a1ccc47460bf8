import type { ApiError, Cause, Named } from './api-error.ts';
import type { Json, JsonObject } from './json-value.ts';
import type { KubeObject } from './kube-object.ts';
import type { Struct } from './schema/struct.ts';

/** A column of `kubectl get`. Priority 1 is shown only with `-o wide`. */
export interface Column {
  readonly name: string;
  readonly type: 'string' | 'integer' | 'boolean' | 'date';
  readonly format?: 'name';
  readonly priority?: number;
  readonly cell: (object: KubeObject, nowMs: number) => Json;
}

/** What rules may read beside the object itself. */
export interface RuleContext {
  readonly nowMs: number;
  /** All objects of a resource, for admission. */
  list(plural: string, group: string): Iterable<KubeObject>;
}

/** The definition of one kind. Its functions may change the object that they are given, but not
 * `old`, which is stored. */
export interface Resource extends Named {
  readonly version: string;
  readonly singular: string;
  readonly shortNames?: readonly string[];
  readonly categories?: readonly string[];
  readonly namespaced: boolean;
  readonly struct: Struct;
  readonly columns: readonly Column[];
  /** Has the subresource /status: writes of the status and of the rest are separate. */
  readonly hasStatus?: boolean;
  /** Writes of /status do not change the metadata. (For some kinds they can change labels,
   * annotations and finalizers.) */
  readonly statusLeavesMetadata?: boolean;
  /** metadata.generation counts changes of everything but metadata and status. */
  readonly hasGeneration?: boolean;
  /** PUT creates an object that does not exist. */
  readonly createsOnUpdate?: boolean;
  /** PUT without a resourceVersion is refused. */
  readonly needsResourceVersion?: boolean;
  /** DELETE answers with the object instead of a Status. */
  readonly returnsDeleted?: boolean;
  /** Has no deletecollection: objects are deleted one by one. */
  readonly deletedOneByOne?: boolean;
  /** The object is never stored: this function answers POST. */
  readonly review?: (object: KubeObject) => KubeObject;
  /** Fields that a field selector may name beside metadata.name and metadata.namespace. */
  readonly fieldLabels?: Readonly<Record<string, (object: KubeObject) => string>>;
  readonly nameComplaint?: (name: string) => string | undefined;
  /** Sets defaults; called before validation, at creation and at each update. */
  readonly applyDefaults?: (object: KubeObject) => void;
  /** Sets what admission and the server set at creation. */
  readonly beforeCreate?: (object: KubeObject, context: RuleContext) => void;
  /** Sets what the server sets when an object changes. */
  readonly beforeUpdate?: (object: KubeObject, old: KubeObject, context: RuleContext) => void;
  readonly validate?: (object: KubeObject) => Cause[];
  readonly validateUpdate?: (
    object: KubeObject,
    old: KubeObject,
    part: 'main' | 'status',
  ) => Cause[];
  /** Refuses a creation or change for reasons other than validation. */
  readonly admit?: (
    object: KubeObject,
    old: KubeObject | undefined,
    context: RuleContext,
  ) => ApiError | undefined;
  /** Set if these are another resource's objects under a different group, version or shape. */
  readonly view?: View;
}

/** How objects that another resource stores are converted. */
export interface View {
  readonly storedAs: Resource;
  toStored(object: JsonObject): JsonObject;
  fromStored(object: KubeObject): KubeObject;
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

/** The `group` member of a Status' details, which the core group does not have. */
export function qualifiedGroup(resource: Named): { group?: string } {
  return resource.group === '' ? {} : { group: resource.group };
}
