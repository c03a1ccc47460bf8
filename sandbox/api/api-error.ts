import type { JsonObject } from './json-value.ts';

/** The parts of a Status that differ between failures. */
export interface Failure {
  readonly code: number;
  readonly reason: string;
  readonly message: string;
  readonly details?: JsonObject;
}

/** A refused request. The caller gets it as a `Status` object with an HTTP code. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly failure: Failure;
  constructor(failure: Failure) {
    super(failure.message);
    this.failure = failure;
  }

  /** The `Status` object. */
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

/** The names of a resource in errors: most use plural and group, 422 uses the kind. */
export interface Named {
  readonly group: string;
  readonly plural: string;
  readonly kind: string;
}

const qualified = (resource: Named, kind: string) =>
  resource.group === '' ? kind : `${kind}.${resource.group}`;

function detailsOf(resource: Named, name: string, kind: string): JsonObject {
  return {
    ...(name === '' ? {} : { name }),
    ...(resource.group === '' ? {} : { group: resource.group }),
    kind: kind,
  };
}

/** 404: the object does not exist. */
export function notFound(resource: Named, name: string): ApiError {
  const message = `${qualified(resource, resource.plural)} "${name}" not found`;
  return new ApiError({
    code: 404,
    reason: 'NotFound',
    message,
    details: detailsOf(resource, name, resource.plural),
  });
}

/** 404: the path names no resource of this server. */
export function noSuchResource(): ApiError {
  return new ApiError({
    code: 404,
    reason: 'NotFound',
    message: 'the server could not find the requested resource',
    details: {},
  });
}

/** 409: an object of that name exists; the message says so if it is being deleted. */
export function alreadyExists(resource: Named, name: string, beingDeleted: boolean): ApiError {
  const prefix = beingDeleted ? 'object is being deleted: ' : '';
  const message = `${prefix}${qualified(resource, resource.plural)} "${name}" already exists`;
  return new ApiError({
    code: 409,
    reason: 'AlreadyExists',
    message,
    details: detailsOf(resource, name, resource.plural),
  });
}

const MODIFIED =
  'the object has been modified; please apply your changes to the latest version and try again';

/** 409: a write is based on an older resourceVersion, or a precondition is not met (`why`). */
export function conflict(resource: Named, name: string, why: string = MODIFIED): ApiError {
  const named = `${qualified(resource, resource.plural)} "${name}"`;
  const message = `Operation cannot be fulfilled on ${named}: ${why}`;
  return new ApiError({
    code: 409,
    reason: 'Conflict',
    message,
    details: detailsOf(resource, name, resource.plural),
  });
}

/** 403: the object may not be written or deleted. */
export function forbidden(
  resource: Named,
  name: string,
  why: string,
  causes: readonly JsonObject[] = [],
): ApiError {
  const message = `${qualified(resource, resource.plural)} "${name}" is forbidden: ${why}`;
  const details = { ...detailsOf(resource, name, resource.plural), causes: [...causes] };
  return new ApiError({ code: 403, reason: 'Forbidden', message, details });
}

/** 400: the request can't be parsed. */
export function badRequest(message: string): ApiError {
  return new ApiError({ code: 400, reason: 'BadRequest', message });
}

/** 422: a field of the object is invalid. */
export function invalid(
  resource: Named,
  name: string,
  { field, why }: { readonly field: string; readonly why: string },
): ApiError {
  const message = `${qualified(resource, resource.kind)} "${name}" is invalid: ${field}: ${why}`;
  const causes = [{ reason: 'FieldValueInvalid', message: why, field }];
  const details = { ...detailsOf(resource, name, resource.kind), causes };
  return new ApiError({ code: 422, reason: 'Invalid', message, details });
}

/** 410: the requested part of the history is no longer kept. */
export function expired(message: string): ApiError {
  return new ApiError({ code: 410, reason: 'Expired', message });
}

/** 405, 406, 413, 415: the form of the request is refused. */
export function refused(code: number, reason: string, message: string): ApiError {
  return new ApiError({ code, reason, message, details: {} });
}
