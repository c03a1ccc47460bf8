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

/** What rules may look at beside the object itself. */
export interface RuleContext {
  readonly nowMs: number;
  /** Any object of any resource, by plural and group, for admission. */
  list(plural: string, group: string): Iterable<KubeObject>;
}

/** One kind of objects, as a row of data: adding a kind is adding a row. Functions get objects of
 * their own that they may change; `old` is stored and may not be changed. */
export interface Resource extends Named {
  readonly version: string;
  readonly singular: string;
  readonly shortNames?: readonly string[];
  readonly categories?: readonly string[];
  readonly namespaced: boolean;
  readonly struct: Struct;
  readonly columns: readonly Column[];
  /** Has a /status: writes of one leave the other as it is. */
  readonly hasStatus?: boolean;
  /** Writes of /status leave the metadata as it is (some kinds let them change labels, annotations
   * and finalizers). */
  readonly statusLeavesMetadata?: boolean;
  /** metadata.generation counts changes of everything but metadata and status. */
  readonly hasGeneration?: boolean;
  /** PUT of an object that is not there creates it. */
  readonly createsOnUpdate?: boolean;
  /** PUT without a resourceVersion is refused. */
  readonly needsResourceVersion?: boolean;
  /** DELETE answers with the object instead of a Status. */
  readonly returnsDeleted?: boolean;
  /** Has no deletecollection: objects are deleted one by one. */
  readonly deletedOneByOne?: boolean;
  /** Never stored: POST is answered by this function alone. */
  readonly review?: (object: KubeObject) => KubeObject;
  /** Fields that a field selector may name beside metadata.name and metadata.namespace. */
  readonly fieldLabels?: Readonly<Record<string, (object: KubeObject) => string>>;
  readonly nameComplaint?: (name: string) => string | undefined;
  /** Fills what the client may leave out; before validation, at creation and at each update. */
  readonly applyDefaults?: (object: KubeObject) => void;
  /** Admission and what the server sets at creation. */
  readonly beforeCreate?: (object: KubeObject, context: RuleContext) => void;
  /** What the server sets when an object changes. */
  readonly beforeUpdate?: (object: KubeObject, old: KubeObject, context: RuleContext) => void;
  readonly validate?: (object: KubeObject) => Cause[];
  readonly validateUpdate?: (
    object: KubeObject,
    old: KubeObject,
    part: 'main' | 'status',
  ) => Cause[];
  /** A reason to refuse a creation or change that is no matter of validation. */
  readonly admit?: (
    object: KubeObject,
    old: KubeObject | undefined,
    context: RuleContext,
  ) => ApiError | undefined;
  /** The same objects under another group, version or shape: where they are kept, and the way there
   * and back. */
  readonly view?: View;
}

/** A second face of objects that another resource stores. */
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

/** `persistentvolumes` or `storageclasses.storage.k8s.io`: the name of what stores and counters
 * know a resource by. */
export function collectionName(resource: Named): string {
  return resource.group === '' ? resource.plural : `${resource.plural}.${resource.group}`;
}

/** The `group` member of a Status' details, which the core group does not have. */
export function qualifiedGroup(resource: Named): { group?: string } {
  return resource.group === '' ? {} : { group: resource.group };
}
