import { ApiError, badRequest } from '../api-error.ts';
import {
  cloneJson,
  equalJson,
  isObject,
  objectAt,
  plainText,
  setMember,
  textsAt,
  type Json,
  type JsonObject,
} from '../json-value.ts';
import { structOf, type FieldType, type ListType, type Struct } from '../schema/struct.ts';

const PATCH = '$patch';
const RETAIN_KEYS = '$retainKeys';
const ORDER = '$setElementOrder/';
const DELETE_ITEMS = '$deleteFromPrimitiveList/';

/** A merge patch that knows the struct: lists with a merge key are merged item by item, sets of
 * scalars are united, and directives (members that begin with `$`) delete, replace, order and
 * retain.
 * @throws ApiError 400 for an item without its merge key, 500 for an unknown directive (as the real
 *   server does) */
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
    const message = `unknown patch type: ${plainText(directive)} in map`;
    throw new ApiError({ code: 500, reason: '', message });
  }
  const result = retainMembers(target, patch[RETAIN_KEYS]);
  const typeOf = (name: string) => struct?.fields.get(name)?.type;
  for (const [name, value] of Object.entries(patch)) {
    if (isDirective(name) || value === undefined) continue;
    if (value === null) delete result[name];
    else {
      const existing = Object.hasOwn(result, name) ? result[name] : undefined;
      const merged = mergeValue(typeOf(name), existing, value, directivesFor(patch, name));
      setMember(result, name, merged);
    }
  }
  for (const name of listsWithoutItems(patch)) {
    const type = typeOf(name);
    if (isMergedList(type))
      result[name] = mergeList(type, result[name], [], directivesFor(patch, name));
  }
  return result;
}

/** A copy of the target; with `$retainKeys`, only of the members that it lists. */
function retainMembers(target: JsonObject, retained: Json | undefined): JsonObject {
  const members = Object.entries(target).filter(
    ([name, value]) => value !== undefined && (!Array.isArray(retained) || retained.includes(name)),
  );
  return Object.fromEntries(members);
}

function isDirective(name: string): boolean {
  return (
    name === PATCH ||
    name === RETAIN_KEYS ||
    name.startsWith(ORDER) ||
    name.startsWith(DELETE_ITEMS)
  );
}

/** The lists that a patch orders or deletes from without giving items for them. */
function listsWithoutItems(patch: JsonObject): ReadonlySet<string> {
  const named = Object.keys(patch)
    .filter((name) => name.startsWith(ORDER) || name.startsWith(DELETE_ITEMS))
    .map((name) => name.slice(name.indexOf('/') + 1));
  return new Set(named.filter((name) => patch[name] === undefined));
}

/** What a patch says about one list beside its items. */
interface ListDirectives {
  readonly order: Json | undefined;
  readonly deleted: readonly string[];
}

function directivesFor(patch: JsonObject, list: string): ListDirectives {
  return {
    order: patch[`${ORDER}${list}`],
    deleted: textsAt(patch, `${DELETE_ITEMS}${list}`),
  };
}

type MergedList = ListType & { readonly mergeKey: string };

function isMergedList(type: FieldType | undefined): type is MergedList {
  return type?.kind === 'list' && type.mergeKey !== undefined;
}

function mergeValue(
  type: FieldType | undefined,
  existing: Json | undefined,
  value: Json,
  directives: ListDirectives,
): Json {
  if (isObject(value)) return mergeStruct(structOf(type), objectAt(existing), value);
  if (Array.isArray(value) && isMergedList(type))
    return mergeList(type, existing, value, directives);
  return withoutDirectives(value);
}

function mergeList(
  type: MergedList,
  existing: Json | undefined,
  items: readonly Json[],
  { order, deleted }: ListDirectives,
): Json[] {
  const before = Array.isArray(existing) ? existing : [];
  // With nothing to merge into, items need no merge key.
  if (before.length === 0 && !items.some((item) => isObject(item) && item[PATCH] !== undefined))
    return items.map(withoutDirectives);
  const merged =
    type.mergeKey === ''
      ? mergeScalars(before, items, deleted)
      : mergeItems(type, type.mergeKey, before, items);
  return Array.isArray(order) ? inOrder(merged, before, order, type.mergeKey) : merged;
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
    const merged = mergeStruct(structOf(type.item), objectAt(existing), item);
    if (at < 0) result.push(merged);
    else result[at] = merged;
  }
  return result;
}

/** Items in the order that the patch asks for. An item that the patch does not list stays behind
 * the item that it followed before. */
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

/** A copy for values that are stored as a whole: directives must not be stored. */
function withoutDirectives<T extends Json>(value: T): T {
  if (Array.isArray(value)) return value.map((item) => withoutDirectives(item)) as T;
  if (!isObject(value)) return cloneJson(value);
  const result: JsonObject = {};
  for (const [name, member] of Object.entries(value)) {
    if (!isDirective(name) && member !== undefined)
      setMember(result, name, withoutDirectives(member));
  }
  return result as T;
}
