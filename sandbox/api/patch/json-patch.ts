import { ApiError, badRequest } from '../api-error.ts';
import {
  cloneJson,
  equalJson,
  isObject,
  plainText,
  setMember,
  type Json,
  type JsonObject,
} from '../json-value.ts';

/** The real server's answer to a patch that does not apply. It says neither which operation failed
 * nor why. */
function doesNotApply(): ApiError {
  const message = 'the server rejected our request due to an error in our request';
  return new ApiError({ code: 422, reason: 'Invalid', message, details: {} });
}

/** Applies a JSON patch (RFC 6902) to a copy of the document.
 * @throws ApiError 400 where the patch is no list of operations, 422 where an operation fails */
export function jsonPatch(document: Json, patch: Json): Json {
  if (!Array.isArray(patch)) {
    const found = isObject(patch) ? 'object' : typeof patch;
    throw badRequest(
      `error decoding patch: json: cannot unmarshal ${found} ` +
        'into Go value of type []handlers.jsonPatchOp',
    );
  }
  let result = cloneJson(document);
  for (const operation of patch) {
    if (!isObject(operation))
      throw badRequest(
        'error decoding patch: json: cannot unmarshal an operation that is no object',
      );
    result = apply(result, operation);
  }
  return result;
}

function apply(document: Json, operation: JsonObject): Json {
  const { op, path, from } = operation;
  if (typeof path !== 'string') throw doesNotApply();
  const value = operation['value'] ?? null;
  switch (plainText(op)) {
    case 'add':
      return add(document, path, cloneJson(value));
    case 'remove':
      return remove(document, path);
    case 'replace':
      return replace(document, path, cloneJson(value));
    case 'test':
      if (!equalJson(readOr(document, path, null), value)) throw doesNotApply();
      return document;
    case 'move': {
      const moved = read(document, pointerIn(from));
      return add(remove(document, pointerIn(from)), path, moved);
    }
    case 'copy':
      return add(document, path, cloneJson(read(document, pointerIn(from))));
    default:
      throw doesNotApply();
  }
}

function pointerIn(from: Json | undefined): string {
  if (typeof from !== 'string') throw doesNotApply();
  return from;
}

function stepsOf(pointer: string): string[] {
  if (pointer === '') return [];
  if (!pointer.startsWith('/')) throw doesNotApply();
  return pointer
    .slice(1)
    .split('/')
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
}

function child(holder: Json, step: string): Json | undefined {
  if (Array.isArray(holder)) return holder[indexIn(holder, step, holder.length - 1)];
  return isObject(holder) && Object.hasOwn(holder, step) ? holder[step] : undefined;
}

function read(document: Json, pointer: string): Json {
  let here: Json | undefined = document;
  for (const step of stepsOf(pointer)) here = here === undefined ? undefined : child(here, step);
  if (here === undefined) throw doesNotApply();
  return here;
}

function readOr(document: Json, pointer: string, otherwise: Json): Json {
  const steps = stepsOf(pointer);
  const last = steps.pop();
  if (last === undefined) return document;
  return child(read(document, pointerOf(steps)), last) ?? otherwise;
}

function pointerOf(steps: readonly string[]): string {
  return steps.map((step) => `/${step.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}

function holderOf(
  document: Json,
  pointer: string,
): { readonly holder: Json; readonly last: string } {
  const steps = stepsOf(pointer);
  const last = steps.pop();
  if (last === undefined) throw doesNotApply();
  return { holder: read(document, pointerOf(steps)), last };
}

function indexIn(list: readonly Json[], step: string, max: number): number {
  const index = /^(0|-?[1-9]\d*)$/.test(step) ? Number(step) : Number.NaN;
  const positive = index < 0 ? list.length + index : index;
  if (!(positive >= 0 && positive <= max)) throw doesNotApply();
  return positive;
}

function add(document: Json, pointer: string, value: Json): Json {
  if (pointer === '') return value;
  const { holder, last } = holderOf(document, pointer);
  if (Array.isArray(holder))
    holder.splice(last === '-' ? holder.length : indexIn(holder, last, holder.length), 0, value);
  else if (isObject(holder)) setMember(holder, last, value);
  else throw doesNotApply();
  return document;
}

function replace(document: Json, pointer: string, value: Json): Json {
  if (pointer === '') return value;
  read(document, pointer);
  const { holder, last } = holderOf(document, pointer);
  if (Array.isArray(holder)) holder[indexIn(holder, last, holder.length - 1)] = value;
  else if (isObject(holder)) setMember(holder, last, value);
  return document;
}

function remove(document: Json, pointer: string): Json {
  const { holder, last } = holderOf(document, pointer);
  if (child(holder, last) === undefined) throw doesNotApply();
  if (Array.isArray(holder)) holder.splice(indexIn(holder, last, holder.length - 1), 1);
  else if (isObject(holder)) delete holder[last];
  return document;
}
