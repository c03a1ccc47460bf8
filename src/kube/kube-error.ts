import { STATUS_CODES } from 'node:http';
import { isFields, parseJson } from '../runtime/json.ts';
import type { Status } from './objects.ts';

/** The API server refused a request or did not answer. */
export class KubeError extends Error {
  override readonly name = 'KubeError';
  /** HTTP status; 0 if there was no answer. */
  readonly code: number;
  /** Status.reason ("NotFound", "AlreadyExists", …). Without a Status: HTTP's phrase ("Not Found").
   * With code 0: an Unanswered. */
  readonly reason: string;
  /** The server's own message, unabridged. */
  readonly serverMessage: string;
  /** How long the server asked us to wait. */
  readonly retryAfterMs?: number | undefined;
  readonly details?: Status['details'] | undefined;

  /** @param fields.request  what was requested: "create persistentvolumes/pvc-1" */
  constructor(
    fields: Omit<KubeError, keyof Error> & { readonly request?: string },
    options?: ErrorOptions,
  ) {
    const request = fields.request === undefined ? '' : `${fields.request}: `;
    super(`${request}${fields.serverMessage || fields.reason}`, options);
    this.code = fields.code;
    this.reason = fields.reason;
    this.serverMessage = fields.serverMessage;
    this.retryAfterMs = fields.retryAfterMs;
    this.details = fields.details;
  }
}

/** Why there is no answer. "Unreachable": no connection, so nothing was sent. "Undecodable": the
 * answer can't be decoded. */
type Unanswered = 'Unreachable' | 'Network' | 'Timeout' | 'Aborted' | 'Credentials' | 'Undecodable';

/** Makes the error of an answer other than 2xx. The body is a Status, or text from a proxy in front
 * of the API server. */
export function answerError(
  request: string,
  answer: {
    readonly code: number;
    readonly body: string;
    readonly retryAfter?: string | undefined;
  },
): KubeError {
  const { code, body, retryAfter } = answer;
  const value = parseJson(body);
  const status: Partial<Status> = isFields(value) && value['kind'] === 'Status' ? value : {};
  const { reason, message, details } = status;
  const seconds = details?.retryAfterSeconds || undefined;
  return new KubeError({
    code,
    reason: reason || (STATUS_CODES[code] ?? 'Unknown'),
    serverMessage: message ?? body.trim().slice(0, 2000),
    request: `${request}: HTTP ${code}`,
    retryAfterMs: parseRetryAfterMs(retryAfter ?? seconds?.toString()),
    details,
  });
}

/** Makes the error of a watch event of type ERROR, whose object is a Status. */
export function statusError(request: string, object: unknown): KubeError {
  const code = isFields(object) && typeof object['code'] === 'number' ? object['code'] : 500;
  return answerError(request, { code, body: JSON.stringify(object) ?? '' });
}

/** Makes the error of a request without an answer. */
export function unansweredError(
  request: string,
  reason: Unanswered,
  serverMessage: string,
  cause?: unknown,
): KubeError {
  return new KubeError({ code: 0, reason, serverMessage, request }, { cause });
}

/** Retry-After is seconds or an HTTP date. */
function parseRetryAfterMs(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  if (/^\d+$/.test(header)) return Number(header) * 1000;
  const atMs = Date.parse(header);
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - Date.now());
}

function isKube(error: unknown, code: number): error is KubeError {
  return error instanceof KubeError && error.code === code;
}

/** 404 from the API server itself: the object does not exist. False for a 404 without a Status: it
 * comes from an unknown API group or a proxy, and says nothing about the object. */
export function isNotFound(error: unknown): error is KubeError {
  return isKube(error, 404) && error.reason === 'NotFound';
}

/** 409 because the name is taken, perhaps by an object that is being deleted. */
export function isAlreadyExists(error: unknown): error is KubeError {
  return isKube(error, 409) && error.reason === 'AlreadyExists';
}

/** 409 because the object has changed, or because a precondition is not met. */
export function isConflict(error: unknown): error is KubeError {
  return isKube(error, 409) && error.reason !== 'AlreadyExists';
}

/** 410: the resourceVersion or the continue token is too old. */
export function isExpired(error: unknown): error is KubeError {
  return isKube(error, 410);
}

/** 403: refused by RBAC, a quota or an admission plug-in. */
export function isForbidden(error: unknown): error is KubeError {
  return isKube(error, 403);
}

/** 422: the object fails validation, or a JSON patch does not apply. */
export function isInvalid(error: unknown): error is KubeError {
  return isKube(error, 422);
}

/** The API server is unavailable or overloaded, whatever the request. */
export function isOutage(error: KubeError): boolean {
  return error.code === 0 || error.code === 429 || error.code >= 500;
}

/** Reads from a 403 the RBAC rule that the role lacks. Returns undefined for other errors, and if
 * an admission plug-in or a quota refused. */
export function missingRule({ code, serverMessage }: KubeError): string | undefined {
  const [, verb, resource, group, place] =
    /cannot (\w+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?/.exec(
      code === 403 ? serverMessage : '',
    ) ?? [];
  if (verb === undefined) return undefined;
  const rule = `{ apiGroups: ['${group}'], resources: [${resource}], verbs: [${verb}] }`;
  return place === undefined ? rule : `${rule} in ${place}`;
}
