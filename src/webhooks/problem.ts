import type { IncomingMessage, ServerResponse } from 'node:http';

/** Why a request is refused, or one event of it. It never contains a part of the body: a body may
 * be a Secret. */
export interface Problem {
  readonly status: keyof typeof KINDS;
  /** What is wrong here, and what to send instead. */
  readonly detail: string;
  /** The attribute, header or path in the body that is wrong. */
  readonly field?: string;
  /** When to try again. */
  readonly retryAfterSeconds?: number;
}

/** Kind and title of a problem by its status, always the same. */
const KINDS = {
  400: ['invalid', 'the request is not valid'],
  401: ['unauthenticated', 'the request has no valid credential'],
  403: ['forbidden', 'the sender may not send events'],
  404: ['not-found', 'there is nothing at this path'],
  405: ['method', 'the method is not supported'],
  413: ['too-large', 'the request is too large'],
  415: ['format', 'the format is not supported'],
  429: ['too-many', 'the sender sends too much'],
  503: ['unavailable', 'events can not be taken now'],
} as const;

/** Names each kind of problem, for metrics. */
export type ProblemKind = (typeof KINDS)[keyof typeof KINDS][0];

/** Ends the work on a request, or on one event of a batch. */
export class RequestProblem extends Error {
  override readonly name = 'RequestProblem';
  readonly problem: Problem;
  /** What the log says beside that; undefined if nothing. */
  readonly reason: string | undefined;

  constructor(problem: Problem, reason?: string) {
    super(problem.detail);
    this.problem = problem;
    this.reason = reason;
  }
}

/** A part of the request has a wrong value, or is missing. */
export function badField(field: string, detail: string): RequestProblem {
  return new RequestProblem({ status: 400, detail, field });
}

/** The body is in a format that is not read. */
export function badFormat(field: string, detail: string): RequestProblem {
  return new RequestProblem({ status: 415, detail, field });
}

/** Runs a function.
 * @returns its value, or the problem that it threw */
export function catchProblem<T>(
  run: () => T,
): { readonly value: T } | { readonly problem: Problem } {
  try {
    return { value: run() };
  } catch (error) {
    if (error instanceof RequestProblem) return { problem: error.problem };
    throw error;
  }
}

export function kindOfProblem({ status }: Problem): ProblemKind {
  return KINDS[status][0];
}

/** A problem as RFC 9457 says it. */
export function problemJson(problem: Problem): Readonly<Record<string, unknown>> {
  const { status, detail, field } = problem;
  const [kind, title] = KINDS[status];
  return { type: `urn:sutler:problem:${kind}`, title, status, detail, ...(field && { field }) };
}

/** Answers with a problem.
 * @param more  further members of the answer */
export function sendProblem(
  request: IncomingMessage,
  response: ServerResponse,
  problem: Problem,
  more: object = {},
): void {
  const { status, retryAfterSeconds } = problem;
  if (response.headersSent) return;
  if (retryAfterSeconds !== undefined) response.setHeader('retry-after', retryAfterSeconds);
  if (status === 401) response.setHeader('www-authenticate', 'Bearer');
  // The rest of the body is thrown away: a client that still sends would not see the answer if the
  // connection ended.
  request.resume();
  const json = { ...problemJson(problem), ...more };
  sendJson(response, { status, type: 'application/problem+json', json });
}

/** Answers. */
export function sendJson(
  response: ServerResponse,
  answer: { readonly status: number; readonly type?: string; readonly json: object },
): void {
  const { status, type = 'application/json', json } = answer;
  const bytes = Buffer.from(JSON.stringify(json));
  response.writeHead(status, {
    'content-type': type,
    'content-length': bytes.length,
    'cache-control': 'no-store',
  });
  response.end(bytes);
}
