import type { Json, JsonObject } from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import type { Resource } from '../resource.ts';
import type { Stored } from '../store.ts';

/** What each row of a table contains beside its cells. */
export type IncludeObject = 'None' | 'Metadata' | 'Object';

export interface TableOptions {
  readonly nowMs: number;
  readonly includeObject: IncludeObject;
  readonly listMetadata?: JsonObject;
  /** Only the first event of a watch contains the columns. */
  readonly withColumns?: boolean;
}

/** Objects as a table for kubectl, one row each. */
export function tableOf(
  resource: Resource,
  items: readonly Stored[],
  options: TableOptions,
): JsonObject {
  return {
    kind: 'Table',
    apiVersion: 'meta.k8s.io/v1',
    metadata: options.listMetadata ?? {
      resourceVersion: items[0]?.object.metadata.resourceVersion ?? '',
    },
    columnDefinitions:
      options.withColumns === false
        ? []
        : resource.columns.map((column) => ({
            name: column.name,
            type: column.type,
            format: column.format ?? '',
            description: '',
            priority: column.priority ?? 0,
          })),
    rows: items.map((item) => ({
      cells: resource.columns.map((column) =>
        column.cell(cellSource(resource, item), options.nowMs),
      ),
      ...rowObject(item.object, options.includeObject),
    })),
  };
}

/** The object that column functions get: for a view, its stored shape. */
function cellSource(resource: Resource, item: Stored): KubeObject {
  const { view } = resource;
  return view === undefined || view.storedAs.columns !== resource.columns
    ? item.object
    : (view.toStored(item.object) as KubeObject);
}

function rowObject(object: KubeObject, include: IncludeObject): { object?: Json } {
  if (include === 'None') return {};
  return { object: include === 'Object' ? object : partialMetadata(object) };
}

/** Only the metadata of an object. */
export function partialMetadata(object: KubeObject): JsonObject {
  return { kind: 'PartialObjectMetadata', apiVersion: 'meta.k8s.io/v1', metadata: object.metadata };
}
