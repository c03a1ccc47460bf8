import { ApiError, badRequest } from '../api-error.ts';
import {
  cloneJson,
  equalJson,
  isObject,
  plainText,
  setMember,
  textsAt,
  type Json,
  type JsonObject,
} from '../json-value.ts';
import type { FieldType, Struct } from '../schema/struct.ts';

const PATCH = '$patch';
const RETAIN_KEYS = '$retainKeys';
const ORDER = '$setElementOrder/';
const DELETE_ITEMS = '$deleteFromPrimitiveList/';

type ListType = Extract<FieldType, { kind: 'list' }>;

/** A merge patch that knows the struct: lists with a merge key are merged item by item, sets of
 * scalars are united, and directives delete, replace, order and retain.
 * @throws ApiError 400 for an item without its merge key, 500 for a directive that is not known (as
 *   the real server) */
export function strategicPatch(struct: Struct, target: JsonObject, patch: JsonObject): JsonObject {
  return mergeStruct(struct, target, patch);
}

function mergeStruct(
  struct: Struct | undefined,
  target: JsonObject,
  patch: JsonObject,
): JsonObject {
  const directive = patch[PATCH];
  if (directive === 'replace') return withoutDirectives(patch);
  if (directive === 'delete') return {};
  if (directive !== undefined && directive !== 'merge') {
    throw new ApiError({
      code: 500,
      reason: '',
      message: `unknown patch type: ${plainText(directive)} in map`,
    });
  }
  const result: JsonObject = { ...target };
  const retained = patch[RETAIN_KEYS];
  if (Array.isArray(retained))
    for (const name of Object.keys(result)) if (!retained.includes(name)) delete result[name];
  for (const name of Object.keys(patch)) {
    if (name === PATCH || name === RETAIN_KEYS) continue;
    if (name.startsWith(ORDER) || name.startsWith(DELETE_ITEMS)) {
      const field = name.slice(name.indexOf('/') + 1);
      if (patch[field] === undefined)
        result[field] = mergeValue(
          struct?.fields.get(field)?.type,
          result[field],
          [],
          patch,
          field,
        );
      continue;
    }
    const value = patch[name];
    if (value === null) delete result[name];
    else if (value !== undefined) {
      const existing = Object.hasOwn(result, name) ? result[name] : undefined;
      setMember(
        result,
        name,
        mergeValue(struct?.fields.get(name)?.type, existing, value, patch, name),
      );
    }
  }
  for (const name of Object.keys(result)) if (result[name] === undefined) delete result[name];
  return result;
}

function mergeValue(
  type: FieldType | undefined,
  existing: Json | undefined,
  value: Json,
  patch: JsonObject,
  name: string,
): Json | undefined {
  if (isObject(value)) {
    return mergeStruct(
      type?.kind === 'struct' ? type.struct : undefined,
      isObject(existing) ? existing : {},
      value,
    );
  }
  if (Array.isArray(value) && type?.kind === 'list' && type.mergeKey !== undefined) {
    const before = Array.isArray(existing) ? existing : [];
    // Where there was no list nothing is looked up: items need no merge key then.
    if (before.length === 0 && !value.some((item) => isObject(item) && item[PATCH] !== undefined))
      return withoutDirectives(value);
    const order = patch[`${ORDER}${name}`];
    const merged =
      type.mergeKey === ''
        ? mergeScalars(before, value, textsAt(patch, `${DELETE_ITEMS}${name}`))
        : mergeItems(type, type.mergeKey, before, value);
    return Array.isArray(order) ? inOrder(merged, before, order, type.mergeKey) : merged;
  }
  if (Array.isArray(value) && value.length === 0 && patch[name] === undefined) return existing;
  return withoutDirectives(value);
}

function mergeScalars(
  before: readonly Json[],
  added: readonly Json[],
  deleted: readonly string[],
): Json[] {
  const kept = before.filter((item) => !deleted.includes(plainText(item)));
  return [...kept, ...added.filter((item) => !kept.includes(item))];
}

function mergeItems(
  type: ListType,
  key: string,
  before: readonly Json[],
  items: readonly Json[],
): Json[] {
  if (
    items.some((item) => isObject(item) && item[PATCH] === 'replace' && item[key] === undefined)
  ) {
    return items
      .filter((item) => isObject(item) && item[PATCH] === undefined)
      .map((item) => withoutDirectives(item));
  }
  let result: Json[] = [...before];
  for (const item of items) {
    if (!isObject(item) || item[key] === undefined)
      throw badRequest(`map: ${JSON.stringify(item)} does not contain declared merge key: ${key}`);
    const same = (other: Json) => isObject(other) && equalJson(other[key], item[key]);
    if (item[PATCH] === 'delete') {
      result = result.filter((other) => !same(other));
      continue;
    }
    const at = result.findIndex(same);
    const existing = result[at];
    const merged = mergeStruct(
      type.item.kind === 'struct' ? type.item.struct : undefined,
      isObject(existing) ? existing : {},
      item,
    );
    if (at < 0) result.push(merged);
    else result[at] = merged;
  }
  return result;
}

/** Items in the order that the patch asks for; an item that the patch doesn't know stays behind its
 * old neighbour. */
function inOrder(
  items: readonly Json[],
  before: readonly Json[],
  order: readonly Json[],
  key: string,
): Json[] {
  const idOf = (item: Json): Json | undefined =>
    key === '' ? item : isObject(item) ? item[key] : undefined;
  const rankOf = (item: Json) => order.findIndex((wanted) => equalJson(idOf(wanted), idOf(item)));
  const result = items.filter((item) => rankOf(item) >= 0).sort((a, b) => rankOf(a) - rankOf(b));
  let position = 0;
  for (const old of before) {
    const current = items.find((item) => equalJson(idOf(item), idOf(old)));
    if (current === undefined) continue;
    const at = result.indexOf(current);
    if (at >= 0) position = at + 1;
    else {
      result.splice(position, 0, current);
      position += 1;
    }
  }
  return [...result, ...items.filter((item) => !result.includes(item))];
}

/** A value that is taken over as a whole must not carry directives into the stored object. */
function withoutDirectives<T extends Json>(value: T): T {
  if (Array.isArray(value)) return value.map((item) => withoutDirectives(item)) as T;
  if (!isObject(value)) return cloneJson(value);
  const result: JsonObject = {};
  for (const [name, member] of Object.entries(value)) {
    if (
      name === PATCH ||
      name === RETAIN_KEYS ||
      name.startsWith(ORDER) ||
      name.startsWith(DELETE_ITEMS)
    )
      continue;
    if (member !== undefined) setMember(result, name, withoutDirectives(member));
  }
  return result as T;
}
