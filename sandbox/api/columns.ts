import type { KubeObject } from './kube-object.ts';
import { memberAt, plainText, textsAt } from './json-value.ts';
import type { Column } from './resource.ts';
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

/** A text column.
 * @param from      the path of the member (`spec.volumeName`), or what makes the text
 * @param priority  1: with `-o wide` only */
export function column(
  name: string,
  from: string | ((object: KubeObject) => string),
  priority = 0,
): Column {
  const cell = typeof from === 'string' ? textFrom(from.split('.')) : from;
  return { name, type: 'string', priority, cell };
}

function textFrom(path: readonly string[]): (object: KubeObject) => string {
  return (object) => plainText(memberAt(object, ...path));
}

/** The phase, or that the object is being deleted. */
export const statusColumn = column('Status', (o) =>
  o.metadata.deletionTimestamp === undefined
    ? plainText(memberAt(o, 'status', 'phase'))
    : 'Terminating',
);

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
