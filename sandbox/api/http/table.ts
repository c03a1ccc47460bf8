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
}

/** Objects as a table for kubectl, one row each. */
export function tableOf(
  resource: Resource,
  items: readonly Stored[],
  options: TableOptions,
): JsonObject {
  const resourceVersion = items[0]?.object.metadata.resourceVersion ?? '';
  return {
    kind: 'Table',
    apiVersion: 'meta.k8s.io/v1',
    metadata: options.listMetadata ?? { resourceVersion },
    columnDefinitions: resource.columns.map(({ name, type, format = '', priority = 0 }) => ({
      name,
      type,
      format,
      description: '',
      priority,
    })),
    rows: items.map(({ object }) => ({
      cells: resource.columns.map((column) => column.cell(object, options.nowMs)),
      ...rowObject(object, options.includeObject),
    })),
  };
}

function rowObject(object: KubeObject, include: IncludeObject): { object?: Json } {
  if (include === 'None') return {};
  return { object: include === 'Object' ? object : partialMetadata(object) };
}

/** Only the metadata of an object. */
export function partialMetadata({ metadata }: KubeObject): JsonObject {
  return { kind: 'PartialObjectMetadata', apiVersion: 'meta.k8s.io/v1', metadata };
}
