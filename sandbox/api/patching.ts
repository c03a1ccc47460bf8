import { ApiError, badRequest, invalid } from './api-error.ts';
import { invalidValue } from './field-error.ts';
import { isObject, type Json, type JsonObject } from './json-value.ts';
import type { KubeObject } from './kube-object.ts';
import { jsonPatch } from './patch/json-patch.ts';
import { mergePatch } from './patch/merge-patch.ts';
import { strategicPatch } from './patch/strategic-patch.ts';
import { decodeObject, type DecodeOptions } from './preparation.ts';
import type { Resource } from './resource.ts';

export type PatchType = 'json' | 'merge' | 'strategic' | 'apply';

/** Decodes a patched object. If it is no longer valid, the error blames the patch. */
export function decodePatched(
  resource: Resource,
  patched: JsonObject,
  options: DecodeOptions,
): JsonObject {
  try {
    return decodeObject(resource, patched, options);
  } catch (error) {
    if (!(error instanceof ApiError) || error.failure.code !== 400) throw error;
    const why = error.message.replace(/^.* cannot be handled as a \w+: /, '');
    throw invalid({ group: '', kind: '' }, '', [
      invalidValue('patch', JSON.stringify(patched), why),
    ]);
  }
}

/** Applies a patch; the result is not validated.
 * @throws ApiError 400, 415 or 422 for a patch that can't be parsed or does not apply */
export function patchedBy(
  resource: Resource,
  type: 'json' | 'merge' | 'strategic',
  before: KubeObject,
  patch: Json,
): Json {
  if (type === 'json') return jsonPatch(before, patch);
  if (!isObject(patch))
    throw badRequest(
      'error decoding patch: json: cannot unmarshal ' +
        (Array.isArray(patch) ? 'array' : typeof patch) +
        ' into Go value of type map[string]interface {}',
    );
  if (type === 'merge') return mergePatch(before, patch);
  if (resource.struct.name === 'CustomObject') {
    const accepted =
      'application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml';
    const message =
      'the body of the request was in an unknown format - ' +
      `accepted media types include: ${accepted}`;
    throw new ApiError({ code: 415, reason: 'UnsupportedMediaType', message });
  }
  return strategicPatch(resource.struct, before, patch);
}

/** Removes the empty structs (`status: {}`) that decoding adds: a manager owns only what it wrote.
 */
export function pruned(decoded: JsonObject, wanted: JsonObject): JsonObject {
  const result: JsonObject = {};
  for (const [name, value] of Object.entries(decoded)) {
    const given = wanted[name];
    if (given === undefined && name !== 'kind' && name !== 'apiVersion') continue;
    result[name] = isObject(value) && isObject(given) ? pruned(value, given) : value;
  }
  return result;
}
