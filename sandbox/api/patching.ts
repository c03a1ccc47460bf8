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

/** What a patch makes of an object must be one still: if not, that is the patch's fault, and it is
 * told so. */
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

/** The object with a patch applied; nothing is checked yet.
 * @throws ApiError 400, 415 or 422 for a patch that cannot be read or does not apply */
export function patchedBy(
  resource: Resource,
  type: 'json' | 'merge' | 'strategic',
  before: KubeObject,
  patch: Json,
): Json {
  if (type === 'json') return jsonPatch(before, patch);
  if (!isObject(patch))
    throw badRequest(
      `error decoding patch: json: cannot unmarshal ${Array.isArray(patch) ? 'array' : typeof patch} into Go value of type map[string]interface {}`,
    );
  if (type === 'merge') return mergePatch(before, patch);
  if (resource.struct.name === 'CustomObject') {
    const accepted =
      'application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml';
    const message = `the body of the request was in an unknown format - accepted media types include: ${accepted}`;
    throw new ApiError({ code: 415, reason: 'UnsupportedMediaType', message });
  }
  return strategicPatch(resource.struct, before, patch);
}

/** Decoding adds empty structs (`status: {}`); what the manager did not write it does not own. */
export function pruned(decoded: JsonObject, wanted: JsonObject): JsonObject {
  const result: JsonObject = {};
  for (const [name, value] of Object.entries(decoded)) {
    const given = wanted[name];
    if (given === undefined && name !== 'kind' && name !== 'apiVersion') continue;
    result[name] = isObject(value) && isObject(given) ? pruned(value, given) : value;
  }
  return result;
}
