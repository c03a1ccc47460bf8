import { badRequest } from '../api-error.ts';
import {
  cloneJson,
  equalJson,
  isObject,
  objectAt,
  setMember,
  textsAt,
  type Json,
  type JsonObject,
} from '../json-value.ts';

/** The lists that are merged item by item, by name, and the member that identifies an item. ''
 * unites lists of scalars. Real servers know this for each kind; here one name has one meaning. */
const MERGE_KEYS: Readonly<Record<string, string>> = {
  finalizers: '',
  ownerReferences: 'uid',
  conditions: 'type',
  addresses: 'type',
  drivers: 'name',
  webhooks: 'name',
  volumes: 'name',
  initContainers: 'name',
  containers: 'name',
  env: 'name',
  ports: 'containerPort',
  volumeMounts: 'mountPath',
  volumeDevices: 'devicePath',
};

const PATCH = '$patch';
const RETAIN_KEYS = '$retainKeys';
const ORDER = '$setElementOrder/';
const DELETE_ITEMS = '$deleteFromPrimitiveList/';

/** Applies a merge patch that merges some lists item by item, and in which directives (members that
 * begin with `$`) delete and replace. Ignores directives about the order.
 * @throws ApiError 400 for an item without its merge key */
export function strategicPatch(target: JsonObject, patch: JsonObject): JsonObject {
  if (patch[PATCH] === 'replace') return withoutDirectives(patch);
  if (patch[PATCH] === 'delete') return {};
  const retained = patch[RETAIN_KEYS];
  const members = Object.entries(target).filter(
    ([name]) => !Array.isArray(retained) || retained.includes(name),
  );
  const result: JsonObject = Object.fromEntries(members);
  for (const [name, deleted] of Object.entries(patch))
    if (name.startsWith(DELETE_ITEMS) && Array.isArray(deleted)) {
      const list = name.slice(DELETE_ITEMS.length);
      result[list] = textsAt(result, list).filter((item) => !deleted.includes(item));
    }
  for (const [name, value] of Object.entries(patch)) {
    if (isDirective(name) || value === undefined) continue;
    if (value === null) delete result[name];
    else setMember(result, name, mergeMember(name, result, value));
  }
  return result;
}

function isDirective(name: string): boolean {
  return (
    name === PATCH ||
    name === RETAIN_KEYS ||
    name.startsWith(ORDER) ||
    name.startsWith(DELETE_ITEMS)
  );
}

function mergeMember(name: string, holder: JsonObject, value: Json): Json {
  const existing = Object.hasOwn(holder, name) ? holder[name] : undefined;
  if (isObject(value)) return strategicPatch(objectAt({ existing }, 'existing'), value);
  const key = Object.hasOwn(MERGE_KEYS, name) ? MERGE_KEYS[name] : undefined;
  if (!Array.isArray(value) || key === undefined) return withoutDirectives(value);
  const before = Array.isArray(existing) ? existing : [];
  if (key === '') return [...before, ...value.filter((item) => !before.includes(item))];
  return mergeItems(key, before, value);
}

function mergeItems(key: string, before: readonly Json[], items: readonly Json[]): Json[] {
  let result: Json[] = [...before];
  for (const item of items) {
    if (isObject(item) && item[PATCH] === 'replace' && item[key] === undefined) {
      result = [];
      continue;
    }
    if (!isObject(item) || item[key] === undefined)
      throw badRequest(`map: ${JSON.stringify(item)} does not contain declared merge key: ${key}`);
    const at = result.findIndex((other) => isObject(other) && equalJson(other[key], item[key]));
    if (item[PATCH] === 'delete') result = result.filter((_, i) => i !== at);
    else if (at < 0) result.push(strategicPatch({}, item));
    else result[at] = strategicPatch(objectAt({ item: result[at] }, 'item'), item);
  }
  return result;
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
