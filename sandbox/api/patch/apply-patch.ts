import { ApiError } from '../api-error.ts';
import {
  equalJson,
  isObject,
  memberAt,
  setMember,
  textAt,
  type Json,
  type JsonObject,
} from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import type { FieldType, Struct } from '../schema/struct.ts';
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

/** Server-side apply: merges what a manager wants, takes away what it wanted before and no longer
 * does, and notes who owns what. Ownership is kept for managers that apply; plain updates own
 * nothing, so they never conflict (the real server tracks them too).
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
  const metadata = isObject(result['metadata']) ? result['metadata'] : {};
  const keptOthers =
    conflicts.length > 0
      ? others.map((entry) => ({ ...entry, fieldsV1: difference(setOf(entry), owned) }))
      : others;
  metadata['managedFields'] = [
    ...keptOthers.filter((entry) => Object.keys(setOf(entry)).length > 0),
    {
      manager: request.manager,
      operation: 'Apply',
      apiVersion: textAt(wanted, 'apiVersion'),
      // An apply that changes nothing leaves the object as it is, time included.
      time:
        mine !== undefined && equalJson(mine['fieldsV1'], owned)
          ? (mine['time'] ?? request.time)
          : request.time,
      fieldsType: 'FieldsV1',
      fieldsV1: owned,
      ...(request.subresource === undefined ? {} : { subresource: request.subresource }),
    },
  ];
  return result;
}

function isMine(entry: JsonObject, request: ApplyRequest): boolean {
  return (
    entry['manager'] === request.manager &&
    entry['operation'] === 'Apply' &&
    (entry['subresource'] ?? '') === (request.subresource ?? '')
  );
}

function setOf(entry: JsonObject): FieldSet {
  return isObject(entry['fieldsV1']) ? entry['fieldsV1'] : {};
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
    if (type?.kind === 'struct' && type.struct.atomic) return wanted;
    return mergeStruct(
      type?.kind === 'struct' ? type.struct : undefined,
      isObject(live) ? live : {},
      wanted,
    );
  }
  if (
    !Array.isArray(wanted) ||
    type?.kind !== 'list' ||
    (!type.isSet && type.applyKeys === undefined)
  )
    return wanted;
  const result: Json[] = Array.isArray(live) ? [...live] : [];
  for (const item of wanted) {
    const key = itemKey(type, item);
    const at = result.findIndex((other) => itemKey(type, other) === key);
    const existing = result[at];
    if (at < 0) result.push(item);
    else if (isObject(existing) && isObject(item)) {
      result[at] = mergeStruct(
        type.item.kind === 'struct' ? type.item.struct : undefined,
        existing,
        item,
      );
    }
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
    else if (isObject(value))
      result[member] = removeSet(type?.kind === 'struct' ? type.struct : undefined, value, below);
    else if (Array.isArray(value) && type?.kind === 'list')
      result[member] = removeItems(type, value, below);
  }
  return result;
}

function removeItems(
  type: Extract<FieldType, { kind: 'list' }>,
  items: readonly Json[],
  set: FieldSet,
): Json[] {
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

/** The value at a path that `commonLeaves` made; paths through list items compare the whole list.
 */
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
  const said = conflicts
    .map(({ manager, path }) => `conflict with "${manager}": ${path}`)
    .join('\n');
  return new ApiError({
    code: 409,
    reason: 'Conflict',
    message: `Apply failed with ${count}: ${said}`,
    details: { causes },
  });
}
