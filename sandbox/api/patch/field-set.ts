import { isObject, setMember, type Json, type JsonObject } from '../json-value.ts';
import type { FieldType, Struct } from '../schema/struct.ts';

/** Which fields somebody owns, in the form of `fieldsV1`: `f:name` members, `k:{…}` items by key,
 * `v:"…"` items of sets; an empty object is an owned leaf, a `.` member says that the item itself
 * is owned. */
export type FieldSet = JsonObject;

type ListType = Extract<FieldType, { kind: 'list' }>;

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

/** The fields that an applied object owns: all it names, but for its identity. */
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

/** How an item is named in a field set, or undefined for lists that are owned as one. */
export function itemKey(type: ListType, item: Json): string | undefined {
  if (type.isSet) return `v:${JSON.stringify(item)}`;
  if (type.applyKeys === undefined || !isObject(item)) return undefined;
  const key: JsonObject = {};
  for (const name of [...type.applyKeys].sort())
    if (item[name] !== undefined) key[name] = item[name];
  return `k:${JSON.stringify(key)}`;
}

/** What a owns and b does not. */
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

/** What either owns. */
export function union(a: FieldSet, b: FieldSet): FieldSet {
  const all: FieldSet = { ...a };
  for (const [name, below] of Object.entries(b)) {
    const other = all[name];
    all[name] = isObject(other) && isObject(below) ? union(other, below) : below;
  }
  return all;
}

/** The paths of the leaves that both own, as error messages write them: `.spec.storageClassName`.
 */
export function commonLeaves(a: FieldSet, b: FieldSet, path = ''): string[] {
  return Object.entries(a).flatMap(([name, below]) => {
    const other = b[name];
    if (name === '.' || !isObject(below) || !isObject(other)) return [];
    const here = name.startsWith('f:') ? `${path}.${name.slice(2)}` : `${path}[${name.slice(2)}]`;
    if (Object.keys(below).length === 0 || Object.keys(other).length === 0) return [here];
    return commonLeaves(below, other, here);
  });
}
