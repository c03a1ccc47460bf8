import { ApiError } from '../api-error.ts';
import {
  equalJson,
  isObject,
  memberAt,
  objectAt,
  setMember,
  textAt,
  type Json,
  type JsonObject,
} from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import { structOf, type FieldType, type ListType, type Struct } from '../schema/struct.ts';
import {
  commonLeaves,
  difference,
  fieldSetOf,
  itemKey,
  union,
  type FieldSet,
} from './field-set.ts';

export interface ApplyRequest {
  readonly resource: { readonly struct: Struct };
  readonly manager: string;
  readonly force: boolean;
  readonly subresource: string | undefined;
  readonly time: string;
}

/** Server-side apply: merges the fields that a manager applies, removes those that it applied
 * before and no longer does, and notes the owner of each field. Only managers that apply own
 * fields; plain updates own nothing, so they never conflict (the real server tracks them too).
 * @param live    the stored object, or undefined for a creation
 * @throws        ApiError 409 with one cause per field that another manager applied with another
 *                value, unless forced */
export function applyPatch(
  request: ApplyRequest,
  live: KubeObject | undefined,
  wanted: JsonObject,
): JsonObject {
  const { struct } = request.resource;
  const entries = (live?.metadata.managedFields ?? []).filter(isObject);
  const mine = entries.find((entry) => isMine(entry, request));
  const others = entries.filter((entry) => entry !== mine);
  const owned = fieldSetOf(struct, wanted);
  const merged = mergeStruct(struct, live ?? {}, wanted);
  const conflicts = others.flatMap((entry) =>
    commonLeaves(owned, setOf(entry))
      .filter((path) => !equalJson(leafAt(live ?? {}, path), leafAt(merged, path)))
      .map((path) => ({ manager: textAt(entry, 'manager'), path })),
  );
  if (conflicts.length > 0 && !request.force) throw conflictsWith(conflicts);
  const stillOwned = others.reduce<FieldSet>((all, entry) => union(all, setOf(entry)), owned);
  const dropped = mine === undefined ? {} : difference(setOf(mine), stillOwned);
  const result = removeSet(struct, merged, dropped);
  const keptOthers =
    conflicts.length > 0
      ? others.map((entry) => ({ ...entry, fieldsV1: difference(setOf(entry), owned) }))
      : others;
  objectAt(result, 'metadata')['managedFields'] = [
    ...keptOthers.filter((entry) => Object.keys(setOf(entry)).length > 0),
    ownEntry(request, { wanted, owned, previous: mine }),
  ];
  return result;
}

/** The entry of metadata.managedFields for the manager that applies. */
function ownEntry(
  request: ApplyRequest,
  o: {
    readonly wanted: JsonObject;
    readonly owned: FieldSet;
    readonly previous: JsonObject | undefined;
  },
): JsonObject {
  // An apply that changes nothing leaves the object as it is, time included.
  const isUnchanged = o.previous !== undefined && equalJson(o.previous['fieldsV1'], o.owned);
  return {
    manager: request.manager,
    operation: 'Apply',
    apiVersion: textAt(o.wanted, 'apiVersion'),
    time: (isUnchanged ? o.previous?.['time'] : undefined) ?? request.time,
    fieldsType: 'FieldsV1',
    fieldsV1: o.owned,
    ...(request.subresource === undefined ? {} : { subresource: request.subresource }),
  };
}

function isMine(entry: JsonObject, request: ApplyRequest): boolean {
  return (
    entry['manager'] === request.manager &&
    entry['operation'] === 'Apply' &&
    (entry['subresource'] ?? '') === (request.subresource ?? '')
  );
}

function setOf(entry: JsonObject): FieldSet {
  return objectAt(entry, 'fieldsV1');
}

function mergeStruct(struct: Struct | undefined, live: JsonObject, wanted: JsonObject): JsonObject {
  const result: JsonObject = { ...live };
  for (const [name, value] of Object.entries(wanted)) {
    if (value !== undefined)
      setMember(result, name, mergeValue(struct?.fields.get(name)?.type, result[name], value));
  }
  return result;
}

function mergeValue(type: FieldType | undefined, live: Json | undefined, wanted: Json): Json {
  if (isObject(wanted)) {
    const struct = structOf(type);
    return struct?.atomic === true ? wanted : mergeStruct(struct, objectAt(live), wanted);
  }
  if (!Array.isArray(wanted) || type?.kind !== 'list') return wanted;
  const isAtomic = !type.isSet && type.applyKeys === undefined;
  return isAtomic ? wanted : mergeList(type, Array.isArray(live) ? live : [], wanted);
}

function mergeList(type: ListType, live: readonly Json[], wanted: readonly Json[]): Json[] {
  const result = [...live];
  for (const item of wanted) {
    const key = itemKey(type, item);
    const at = result.findIndex((other) => itemKey(type, other) === key);
    const existing = result[at];
    if (at < 0) result.push(item);
    else if (isObject(existing) && isObject(item))
      result[at] = mergeStruct(structOf(type.item), existing, item);
  }
  return result;
}

function removeSet(struct: Struct | undefined, object: JsonObject, set: FieldSet): JsonObject {
  const result: JsonObject = { ...object };
  for (const [name, below] of Object.entries(set)) {
    if (!name.startsWith('f:') || !isObject(below)) continue;
    const member = name.slice(2);
    const value = result[member];
    const type = struct?.fields.get(member)?.type;
    if (Object.keys(below).length === 0) delete result[member];
    else if (isObject(value)) result[member] = removeSet(structOf(type), value, below);
    else if (Array.isArray(value) && type?.kind === 'list')
      result[member] = removeItems(type, value, below);
  }
  return result;
}

function removeItems(type: ListType, items: readonly Json[], set: FieldSet): Json[] {
  return items.flatMap((item) => {
    const key = itemKey(type, item);
    const below = key === undefined ? undefined : set[key];
    if (!isObject(below)) return [item];
    if (Object.keys(below).length === 0 || below['.'] !== undefined) return [];
    return isObject(item) && type.item.kind === 'struct'
      ? [removeSet(type.item.struct, item, below)]
      : [item];
  });
}

/** The value at a path of `commonLeaves`. For a path into a list item, the whole list. */
function leafAt(object: JsonObject, path: string): Json | undefined {
  const plain = path.split('[')[0] ?? '';
  return memberAt(object, ...plain.split('.').slice(1));
}

function conflictsWith(
  conflicts: readonly { readonly manager: string; readonly path: string }[],
): ApiError {
  const causes = conflicts.map(({ manager, path }) => ({
    reason: 'FieldManagerConflict',
    message: `conflict with "${manager}"`,
    field: path,
  }));
  const count = `${causes.length} conflict${causes.length === 1 ? '' : 's'}`;
  const messages = conflicts
    .map(({ manager, path }) => `conflict with "${manager}": ${path}`)
    .join('\n');
  return new ApiError({
    code: 409,
    reason: 'Conflict',
    message: `Apply failed with ${count}: ${messages}`,
    details: { causes },
  });
}
