/** A JSON value. An undefined member counts as absent. */
export type Json = null | boolean | number | string | Json[] | JsonObject;
export interface JsonObject {
  [member: string]: Json | undefined;
}

/** True for `{…}`, false for arrays, null and scalars. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A deep copy. Stored objects are never changed in place, so patches change a copy. */
export function cloneJson<T extends Json | undefined>(value: T): T {
  if (Array.isArray(value)) return value.map((item) => cloneJson(item)) as T;
  if (!isObject(value)) return value;
  const copy: JsonObject = {};
  for (const name of Object.keys(value)) setMember(copy, name, cloneJson(value[name]));
  return copy as T;
}

/** Equality of JSON values. The order of members does not matter, the order of items does; an
 * undefined member counts as absent. */
export function equalJson(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (Array.isArray(a))
    return Array.isArray(b) && a.length === b.length && a.every((item, i) => equalJson(item, b[i]));
  if (!isObject(a) || !isObject(b)) return false;
  const names = new Set([...Object.keys(a), ...Object.keys(b)]);
  for (const name of names) if (!equalJson(a[name], b[name])) return false;
  return true;
}

/** Assigns a member whose name comes from a client: `__proto__` becomes an ordinary member. */
export function setMember(target: JsonObject, name: string, value: Json | undefined): void {
  if (name === '__proto__')
    Object.defineProperty(target, name, {
      value,
      enumerable: true,
      configurable: true,
      writable: true,
    });
  else target[name] = value;
}

/** The member at a path of names, or undefined if the path ends early. */
export function memberAt(value: Json | undefined, ...path: readonly string[]): Json | undefined {
  let here = value;
  for (const name of path) {
    if (!isObject(here)) return undefined;
    here = here[name];
  }
  return here;
}

/** The text at a path, '' when there is none. */
export function textAt(value: Json | undefined, ...path: readonly string[]): string {
  const found = memberAt(value, ...path);
  return typeof found === 'string' ? found : '';
}

/** A value as text: strings as they are, everything else as JSON; '' for undefined. */
export function plainText(value: Json | undefined): string {
  if (value === undefined) return '';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** The texts of a list at a path, without the items that are no text. */
export function textsAt(value: Json | undefined, ...path: readonly string[]): string[] {
  const found = memberAt(value, ...path);
  return Array.isArray(found)
    ? found.filter((item): item is string => typeof item === 'string')
    : [];
}

/** The object at a path, an empty one when there is none. */
export function objectAt(value: Json | undefined, ...path: readonly string[]): JsonObject {
  const found = memberAt(value, ...path);
  return isObject(found) ? found : {};
}

/** The object in a member of another object; creates it if it is missing. */
export function childOf(parent: JsonObject, name: string): JsonObject {
  const found = parent[name];
  if (isObject(found)) return found;
  const added: JsonObject = {};
  parent[name] = added;
  return added;
}
