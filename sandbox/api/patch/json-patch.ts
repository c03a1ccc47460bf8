import { ApiError, badRequest } from '../api-error.ts';
import {
  cloneJson,
  equalJson,
  isObject,
  setMember,
  type Json,
  type JsonObject,
} from '../json-value.ts';

/** The real server's answer to a patch that does not apply. It does not say which operation failed,
 * or why. */
function doesNotApply(): ApiError {
  const message = 'the server rejected our request due to an error in our request';
  return new ApiError({ code: 422, reason: 'Invalid', message, details: {} });
}

/** Applies a JSON patch (RFC 6902) without `move` and `copy` to a copy of the document.
 * @throws ApiError 400 if the patch is no list of operations, 422 if an operation fails */
export function jsonPatch(document: Json, patch: Json): Json {
  if (!Array.isArray(patch)) throw badRequest('error decoding patch: it is no list of operations');
  const result = cloneJson(document);
  for (const operation of patch) {
    if (!isObject(operation)) throw badRequest('error decoding patch: an operation is no object');
    apply(result, operation);
  }
  return result;
}

function apply(document: Json, { op, path, value = null }: JsonObject): void {
  if (typeof path !== 'string' || !path.startsWith('/')) throw doesNotApply();
  const steps = path
    .slice(1)
    .split('/')
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
  const last = steps.pop() ?? '';
  const holder = steps.reduce(childOf, document);
  if (op === 'add') return add(holder, last, cloneJson(value));
  const current = childOf(holder, last);
  if (op === 'test' && equalJson(current, value)) return;
  if (op === 'replace') return put(holder, last, cloneJson(value));
  if (op !== 'remove') throw doesNotApply();
  if (Array.isArray(holder)) holder.splice(Number(last), 1);
  else delete (holder as JsonObject)[last];
}

/** @throws ApiError 422 if there is no such child */
function childOf(holder: Json, step: string): Json {
  const found = Array.isArray(holder)
    ? holder[Number(step)]
    : isObject(holder) && Object.hasOwn(holder, step)
      ? holder[step]
      : undefined;
  if (found === undefined) throw doesNotApply();
  return found;
}

function add(holder: Json, step: string, value: Json): void {
  if (!Array.isArray(holder)) return put(holder, step, value);
  const at = step === '-' ? holder.length : Number(step);
  if (!(at >= 0 && at <= holder.length)) throw doesNotApply();
  holder.splice(at, 0, value);
}

function put(holder: Json, step: string, value: Json): void {
  if (Array.isArray(holder)) holder[Number(step)] = value;
  else if (isObject(holder)) setMember(holder, step, value);
  else throw doesNotApply();
}
