import type { Status } from './objects.ts';

export interface KubeErrorFields {
  /** HTTP status; 0 if there was no answer. */
  readonly code: number;
  /** Status.reason ("NotFound", "AlreadyExists", …); for code 0 what went wrong: "Network",
   * "Timeout", "Aborted", "Undecodable". */
  readonly reason: string;
  /** The server's own words, whole. */
  readonly serverMessage: string;
  /** What was asked: "create persistentvolumes/pvc-1". */
  readonly request?: string;
  /** The server asked us to wait this long. */
  readonly retryAfterMs?: number;
  /** False only if certainly no byte of the request reached the server. */
  readonly maybeSent?: boolean;
  readonly details?: Status['details'];
}

/** The API server refused or did not answer. */
export class KubeError extends Error {
  override readonly name = 'KubeError';
  readonly code: number;
  readonly reason: string;
  readonly serverMessage: string;
  readonly retryAfterMs: number | undefined;
  /** Whether the request may have had an effect; for answers (code > 0) it was sent by definition.
   */
  readonly maybeSent: boolean;
  readonly details: Status['details'];

  constructor(fields: KubeErrorFields, options?: ErrorOptions) {
    super(
      `${fields.request === undefined ? '' : `${fields.request}: `}${fields.serverMessage === '' ? fields.reason : fields.serverMessage}`,
      options,
    );
    this.code = fields.code;
    this.reason = fields.reason;
    this.serverMessage = fields.serverMessage;
    this.retryAfterMs = fields.retryAfterMs;
    this.maybeSent = fields.maybeSent ?? true;
    this.details = fields.details;
  }
}

const REASONS: Readonly<Record<number, string>> = {
  400: 'BadRequest',
  401: 'Unauthorized',
  403: 'Forbidden',
  405: 'MethodNotAllowed',
  409: 'Conflict',
  410: 'Expired',
  413: 'RequestEntityTooLarge',
  422: 'Invalid',
  429: 'TooManyRequests',
  500: 'InternalError',
  503: 'ServiceUnavailable',
  504: 'Timeout',
};

/** Makes the error of an answer; the body is a Status, or text from something in front of the API
 * server. */
export function answerError(
  request: string,
  answer: {
    readonly code: number;
    readonly body: string;
    readonly retryAfter?: string | undefined;
  },
): KubeError {
  const status = parseStatus(answer.body);
  // A 404 that isn't a Status comes from an unknown API group, a proxy or another server: it says
  // nothing about the object.
  const fallback = answer.code === 404 ? 'NoSuchPath' : (REASONS[answer.code] ?? 'Unknown');
  const retryAfterMs =
    parseRetryAfterMs(answer.retryAfter) ?? secondsToMs(status?.details?.retryAfterSeconds);
  return new KubeError({
    code: answer.code,
    reason: status?.reason === undefined || status.reason === '' ? fallback : status.reason,
    serverMessage: status?.message ?? answer.body.trim().slice(0, 2000),
    request: `${request}: HTTP ${answer.code}`,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(status?.details === undefined ? {} : { details: status.details }),
  });
}

/** Makes the error of an ERROR event: its object is a Status. */
export function statusError(request: string, object: unknown): KubeError {
  const status: Partial<Status> = typeof object === 'object' && object !== null ? object : {};
  const code = status.code ?? 500;
  const retryAfterMs = secondsToMs(status.details?.retryAfterSeconds);
  return new KubeError({
    code,
    reason:
      status.reason === undefined || status.reason === ''
        ? (REASONS[code] ?? 'Unknown')
        : status.reason,
    serverMessage: status.message ?? JSON.stringify(object) ?? '',
    request,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  });
}

function parseStatus(body: string): Status | undefined {
  if (!body.startsWith('{')) return undefined;
  try {
    const value: unknown = JSON.parse(body);
    return isStatus(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isStatus(value: unknown): value is Status {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'Status';
}

/** Beginning of a text that could not be read. Not of JSON: broken or not, it may hold a secret. */
export function excerpt(text: string): string {
  return text.trimStart().startsWith('{')
    ? `${text.length} characters of broken JSON`
    : text.slice(0, 200);
}

/** Retry-After is seconds or an HTTP date. */
function parseRetryAfterMs(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  if (/^\d+$/.test(header)) return Number(header) * 1000;
  const atMs = Date.parse(header);
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - Date.now());
}

function secondsToMs(seconds: number | undefined): number | undefined {
  return seconds === undefined || seconds <= 0 ? undefined : seconds * 1000;
}

function isKube(error: unknown, code: number): error is KubeError {
  return error instanceof KubeError && error.code === code;
}

/** 404 from the API server itself: this object is not there. A 404 for an unknown path, or from
 * something in between, is not meant. */
export function isNotFound(error: unknown): error is KubeError {
  return isKube(error, 404) && error.reason === 'NotFound';
}

/** 409 because the name is taken; also by an object that is going away ("object is being deleted").
 */
export function isAlreadyExists(error: unknown): error is KubeError {
  return isKube(error, 409) && error.reason === 'AlreadyExists';
}

/** 409 because the object changed meanwhile, or a precondition does not hold. */
export function isConflict(error: unknown): error is KubeError {
  return isKube(error, 409) && error.reason !== 'AlreadyExists';
}

/** 410: the resourceVersion or the continue token is too old. */
export function isExpired(error: unknown): error is KubeError {
  return isKube(error, 410);
}

/** 401: the credentials were refused. */
export function isUnauthorized(error: unknown): error is KubeError {
  return isKube(error, 401);
}

/** 403: RBAC, quota or admission said no. */
export function isForbidden(error: unknown): error is KubeError {
  return isKube(error, 403);
}

/** 422: the object is refused by validation, or a JSON patch did not apply. */
export function isInvalid(error: unknown): error is KubeError {
  return isKube(error, 422);
}

/** 429: the server is asking for less. */
export function isTooManyRequests(error: unknown): error is KubeError {
  return isKube(error, 429);
}

/** The server can't be asked now, whatever was asked. */
export function isOutage(error: KubeError): boolean {
  return error.code === 0 || error.code === 429 || error.code >= 500;
}

/** No answer came: network, time-out, abort. The request may have had its effect unless `maybeSent`
 * is false. */
export function isUnanswered(error: unknown): error is KubeError {
  return isKube(error, 0);
}
