import type { Json, JsonObject } from './json-value.ts';

/** One entry of a Status' `details.causes`; `message` already has the wording of its reason. */
export interface Cause {
  readonly reason: string;
  readonly message: string;
  readonly field?: string;
}

/** The parts of a failure that differ from call to call. */
export interface Failure {
  readonly code: number;
  readonly reason: string;
  readonly message: string;
  readonly details?: JsonObject;
}

/** A refusal that the caller sees as a `Status` object with its HTTP code. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly failure: Failure;
  constructor(failure: Failure) {
    super(failure.message);
    this.failure = failure;
  }

  /** The `Status` object as it goes over the wire. */
  get status(): JsonObject {
    const { code, reason, message, details } = this.failure;
    return {
      kind: 'Status',
      apiVersion: 'v1',
      metadata: {},
      status: 'Failure',
      message,
      ...(reason === '' ? {} : { reason }),
      ...(details === undefined ? {} : { details }),
      code,
    };
  }
}

/** How a resource is named in errors: the plural with its group for most, the kind for validation.
 */
export interface Named {
  readonly group: string;
  readonly plural: string;
  readonly kind: string;
}

const qualified = (resource: Named, word: string) =>
  resource.group === '' ? word : `${word}.${resource.group}`;

function detailsOf(resource: Named, name: string, word: string): JsonObject {
  return {
    ...(name === '' ? {} : { name }),
    ...(resource.group === '' ? {} : { group: resource.group }),
    kind: word,
  };
}

/** 404 of an object that is not there. */
export function notFound(resource: Named, name: string): ApiError {
  const message = `${qualified(resource, resource.plural)} "${name}" not found`;
  return new ApiError({
    code: 404,
    reason: 'NotFound',
    message,
    details: detailsOf(resource, name, resource.plural),
  });
}

/** 404 of a path that names no resource we serve. */
export function noSuchResource(): ApiError {
  return new ApiError({
    code: 404,
    reason: 'NotFound',
    message: 'the server could not find the requested resource',
    details: {},
  });
}

/** 409 of a creation; a namesake that is on its way out is named as such. */
export function alreadyExists(resource: Named, name: string, beingDeleted: boolean): ApiError {
  const message = `${beingDeleted ? 'object is being deleted: ' : ''}${qualified(resource, resource.plural)} "${name}" already exists`;
  return new ApiError({
    code: 409,
    reason: 'AlreadyExists',
    message,
    details: detailsOf(resource, name, resource.plural),
  });
}

const MODIFIED =
  'the object has been modified; please apply your changes to the latest version and try again';

/** 409 of a write that was based on an older resourceVersion, or whose preconditions don't hold
 * (`why`). */
export function conflict(resource: Named, name: string, why: string = MODIFIED): ApiError {
  const message = `Operation cannot be fulfilled on ${qualified(resource, resource.plural)} "${name}": ${why}`;
  return new ApiError({
    code: 409,
    reason: 'Conflict',
    message,
    details: detailsOf(resource, name, resource.plural),
  });
}

/** 403 by admission. */
export function forbidden(
  resource: Named,
  name: string,
  why: string,
  causes: readonly Cause[] = [],
): ApiError {
  const message = `${qualified(resource, resource.plural)} "${name}" is forbidden: ${why}`;
  const details = {
    ...detailsOf(resource, name, resource.plural),
    ...(causes.length === 0 ? {} : { causes: causes.map(causeJson) }),
  };
  return new ApiError({ code: 403, reason: 'Forbidden', message, details });
}

/** 400: the request itself cannot be understood. */
export function badRequest(message: string): ApiError {
  return new ApiError({ code: 400, reason: 'BadRequest', message });
}

/** 422 with one cause per field that is wrong. */
export function invalid(
  resource: { readonly group: string; readonly kind: string },
  name: string,
  causes: readonly Cause[],
): ApiError {
  const said = causes.map((cause) => `${cause.field ?? ''}: ${cause.message}`);
  const kind = resource.group === '' ? resource.kind : `${resource.kind}.${resource.group}`;
  const message = `${kind} "${name}" is invalid: ${said.length === 1 ? (said[0] ?? '') : `[${said.join(', ')}]`}`;
  const details: JsonObject = {
    ...(name === '' ? {} : { name }),
    ...(resource.group === '' ? {} : { group: resource.group }),
    ...(resource.kind === '' ? {} : { kind: resource.kind }),
    causes: causes.map(causeJson),
  };
  return new ApiError({ code: 422, reason: 'Invalid', message, details });
}

function causeJson(cause: Cause): Json {
  return {
    reason: cause.reason,
    message: cause.message,
    ...(cause.field === undefined ? {} : { field: cause.field }),
  };
}

/** 410: the history that a list or watch asks for is no longer kept. */
export function expired(message: string): ApiError {
  return new ApiError({ code: 410, reason: 'Expired', message });
}

/** 405, 406, 413, 415 and their like: refusals of the request's form, without details. */
export function refused(code: number, reason: string, message: string): ApiError {
  return new ApiError({ code, reason, message, details: {} });
}
