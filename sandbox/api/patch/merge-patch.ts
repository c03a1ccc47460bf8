import { isObject, setMember, type Json, type JsonObject } from '../json-value.ts';

/** Applies a JSON merge patch (RFC 7386): members of the patch replace, null removes, objects
 * merge, lists are replaced as a whole. */
export function mergePatch(target: Json | undefined, patch: Json): Json {
  if (!isObject(patch)) return patch;
  const result: JsonObject = isObject(target) ? { ...target } : {};
  for (const name of Object.keys(patch)) {
    const value = patch[name];
    if (value === null) delete result[name];
    else if (value !== undefined)
      setMember(
        result,
        name,
        mergePatch(Object.hasOwn(result, name) ? result[name] : undefined, value),
      );
  }
  return result;
}
