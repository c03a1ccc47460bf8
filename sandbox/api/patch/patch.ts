import { badRequest } from '../api-error.ts';
import { isObject, type Json } from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import { jsonPatch } from './json-patch.ts';
import { mergePatch } from './merge-patch.ts';
import { strategicPatch } from './strategic-patch.ts';

export type PatchType = 'json' | 'merge' | 'strategic';

/** Applies a patch to a copy of the object.
 * @throws ApiError 400 or 422 for a patch that can't be parsed or does not apply */
export function applyPatch(type: PatchType, before: KubeObject, patch: Json): Json {
  if (type === 'json') return jsonPatch(before, patch);
  if (!isObject(patch))
    throw badRequest('error decoding patch: json: cannot unmarshal it into an object');
  return type === 'merge' ? mergePatch(before, patch) : strategicPatch(before, patch);
}
