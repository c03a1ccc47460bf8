import type { Response } from 'express';

/** Kind and title of a problem by its status, always the same. */
const KINDS = {
  400: ['invalid', 'the request is not valid'],
  401: ['unauthenticated', 'the request has no valid credential'],
  403: ['forbidden', 'the sender may not send events'],
  404: ['not-found', 'there is nothing at this path'],
  405: ['method', 'the method is not supported'],
  413: ['too-large', 'the request is too large'],
  415: ['format', 'the format is not supported'],
  503: ['unavailable', 'ingest can not take events now'],
} as const;

const RETRY_SECONDS = 2;

/** Why ingest refuses a request, or one of its events. It never contains a part of the body, which
 * may be a Secret. */
export class RequestProblem extends Error {
  override readonly name = 'RequestProblem';
  readonly status: keyof typeof KINDS;
  /** The attribute, header or path in the body that is wrong. */
  readonly field: string | undefined;

  /** @param detail  what is wrong here, and what to send instead */
  constructor(status: keyof typeof KINDS, detail: string, field?: string, cause?: unknown) {
    super(detail, { cause });
    this.status = status;
    this.field = field;
  }

  /** Names each kind of problem, for metrics. */
  get kind(): string {
    return KINDS[this.status][0];
  }

  /** As RFC 9457 says it. */
  toJSON(): Readonly<Record<string, unknown>> {
    const { status, message: detail, field } = this;
    const [kind, title] = KINDS[status];
    return { type: `urn:sutler:problem:${kind}`, title, status, detail, ...(field && { field }) };
  }
}

/** A part of the request has a wrong value, or is missing. */
export function badField(field: string, detail: string): RequestProblem {
  return new RequestProblem(400, detail, field);
}

/** The body has a format that sutler does not read. */
export function badFormat(field: string, detail: string): RequestProblem {
  return new RequestProblem(415, detail, field);
}

/** The request is valid, and the sender may repeat it. */
export function unavailable(detail: string, cause?: unknown): RequestProblem {
  return new RequestProblem(503, detail, undefined, cause);
}

/** Runs a function.
 * @returns its value, or the problem that it threw */
export function orProblem<T>(run: () => T): T | RequestProblem {
  try {
    return run();
  } catch (error) {
    if (error instanceof RequestProblem) return error;
    throw error;
  }
}

/** Answers with a problem.
 * @param more  further members of the answer */
export function sendProblem(response: Response, problem: RequestProblem, more: object = {}): void {
  const { status } = problem;
  if (response.headersSent) return;
  if (status === 503) response.set('retry-after', String(RETRY_SECONDS));
  if (status === 401) response.set('www-authenticate', 'Bearer');
  // Discards the rest of the body: if the connection ended, a client that is still sending would
  // not see the answer.
  response.req.resume();
  sendJson(response.status(status), { ...problem.toJSON(), ...more }, 'application/problem+json');
}

/** Answers with the status that the response has. */
export function sendJson(response: Response, json: object, type = 'application/json'): void {
  response.setHeader('content-type', type);
  response.end(JSON.stringify(json));
}
