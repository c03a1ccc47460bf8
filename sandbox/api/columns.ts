import type { KubeObject } from './kube-object.ts';
import type { Column } from './resource.ts';
import { textsAt } from './json-value.ts';
import { ageOf } from './time.ts';

export const nameColumn: Column = {
  name: 'Name',
  type: 'string',
  format: 'name',
  cell: (o) => o.metadata.name,
};

export const ageColumn: Column = {
  name: 'Age',
  type: 'string',
  cell: (o, nowMs) => ageOf(o.metadata.creationTimestamp, nowMs),
};

/** A text column. */
export function textColumn(
  name: string,
  text: (object: KubeObject) => string,
  priority = 0,
): Column {
  return { name, type: 'string', priority, cell: text };
}

const SHORT_MODES: Readonly<Record<string, string>> = {
  ReadWriteOnce: 'RWO',
  ReadOnlyMany: 'ROX',
  ReadWriteMany: 'RWX',
  ReadWriteOncePod: 'RWOP',
};

/** Access modes as kubectl shows them, in its order: `RWO,ROX,RWX,RWOP`. */
export function shortAccessModes(object: KubeObject, ...path: readonly string[]): string {
  const modes = new Set(textsAt(object, ...path));
  return Object.entries(SHORT_MODES)
    .filter(([mode]) => modes.has(mode))
    .map(([, short]) => short)
    .join(',');
}
