import { isObject, setMember, type Json, type JsonObject } from '../json-value.ts';
import type { FieldType, ListType, Struct } from '../schema/struct.ts';

/** The fields that a manager owns, in the form of `fieldsV1`: members are `f:name`, list items
 * `k:{…}` by key, items of sets `v:"…"`. An empty object is an owned leaf; a `.` member says that
 * the item itself is owned. */
export type FieldSet = JsonObject;

const NOT_OWNED = new Set(['kind', 'apiVersion']);
const NOT_OWNED_METADATA = new Set([
  'name',
  'namespace',
  'uid',
  'resourceVersion',
  'creationTimestamp',
  'generation',
  'managedFields',
  'selfLink',
]);

/** The fields that an apply of this object owns: all that it names, except its identity. */
export function fieldSetOf(struct: Struct, object: JsonObject): FieldSet {
  const set = structSet(struct, object, NOT_OWNED);
  const metadata = set['f:metadata'];
  if (isObject(metadata)) {
    for (const name of NOT_OWNED_METADATA) delete metadata[`f:${name}`];
    if (Object.keys(metadata).length === 0) delete set['f:metadata'];
  }
  return set;
}

function structSet(
  struct: Struct | undefined,
  object: JsonObject,
  except: ReadonlySet<string> = new Set(),
): FieldSet {
  const set: FieldSet = {};
  for (const [name, value] of Object.entries(object)) {
    if (value !== undefined && !except.has(name))
      setMember(set, `f:${name}`, valueSet(struct?.fields.get(name)?.type, value));
  }
  return set;
}

function valueSet(type: FieldType | undefined, value: Json): FieldSet {
  if (isObject(value)) {
    if (type?.kind === 'struct') return type.struct.atomic ? {} : structSet(type.struct, value);
    return structSet(undefined, value);
  }
  if (!Array.isArray(value) || type?.kind !== 'list') return {};
  const set: FieldSet = {};
  for (const item of value) {
    const key = itemKey(type, item);
    if (key === undefined) return {};
    set[key] =
      isObject(item) && type.item.kind === 'struct'
        ? { '.': {}, ...structSet(type.item.struct, item) }
        : {};
  }
  return set;
}

/** The name of an item in a field set; undefined for lists that are owned as one value. */
export function itemKey(type: ListType, item: Json): string | undefined {
  if (type.isSet) return `v:${JSON.stringify(item)}`;
  if (type.applyKeys === undefined || !isObject(item)) return undefined;
  const key: JsonObject = {};
  for (const name of [...type.applyKeys].sort())
    if (item[name] !== undefined) key[name] = item[name];
  return `k:${JSON.stringify(key)}`;
}

/** The fields that are in a and not in b. */
export function difference(a: FieldSet, b: FieldSet): FieldSet {
  const rest: FieldSet = {};
  for (const [name, below] of Object.entries(a)) {
    const other = b[name];
    if (other === undefined) rest[name] = below;
    else if (isObject(below) && isObject(other)) {
      const left = difference(below, other);
      if (Object.keys(left).length > 0) rest[name] = left;
    }
  }
  return rest;
}

/** The fields that are in a or b. */
export function union(a: FieldSet, b: FieldSet): FieldSet {
  const all: FieldSet = { ...a };
  for (const [name, below] of Object.entries(b)) {
    const other = all[name];
    all[name] = isObject(other) && isObject(below) ? union(other, below) : below;
  }
  return all;
}

/** The paths of the leaves that are in both, as error messages write them:
 * `.spec.storageClassName`. */
export function commonLeaves(a: FieldSet, b: FieldSet, path = ''): string[] {
  return Object.entries(a).flatMap(([name, below]) => {
    const other = b[name];
    if (name === '.' || !isObject(below) || !isObject(other)) return [];
    const here = name.startsWith('f:') ? `${path}.${name.slice(2)}` : `${path}[${name.slice(2)}]`;
    if (Object.keys(below).length === 0 || Object.keys(other).length === 0) return [here];
    return commonLeaves(below, other, here);
  });
}
