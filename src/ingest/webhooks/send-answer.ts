import type { IncomingMessage, ServerResponse } from 'node:http';
import { type Problem, problemJson } from './problem.ts';

/** What is read, and thrown away, of a body after its answer: a client that still sends would take
 * the end of the connection for an error, and not see the answer. */
const DISCARDED = { bytes: 16 * 1024 * 1024, ms: 3_000 };
/** Statuses after which the connection ends: what follows on it can't be trusted to be a request,
 * or nobody wants it. */
const CLOSING = new Set([401, 403, 404, 405, 413, 503]);

/** Answers with a problem. */
export function sendProblem(
  request: IncomingMessage,
  response: ServerResponse,
  problem: Problem,
  more: Readonly<Record<string, unknown>> = {},
): void {
  const { status, retryAfterSeconds } = problem;
  if (retryAfterSeconds !== undefined) response.setHeader('retry-after', retryAfterSeconds);
  if (status === 401) response.setHeader('www-authenticate', 'Bearer');
  if (CLOSING.has(status) || !request.complete) response.setHeader('connection', 'close');
  const text = JSON.stringify({ ...problemJson(problem), ...more });
  sendText(request, response, { status, type: 'application/problem+json', text });
}

/** Answers; if the body of the request has not arrived, reads the rest of it first. */
export function sendText(
  request: IncomingMessage,
  response: ServerResponse,
  answer: { readonly status: number; readonly type: string; readonly text: string },
): void {
  if (response.headersSent || response.destroyed) return;
  const bytes = Buffer.from(answer.text);
  response.writeHead(answer.status, {
    'content-type': answer.type,
    'content-length': bytes.length,
    'cache-control': 'no-store',
  });
  if (request.complete || request.destroyed) return void response.end(bytes);
  // The client has the whole answer before the response ends.
  response.write(bytes);
  discardRest(request, () => response.end());
}

function discardRest(request: IncomingMessage, done: () => void): void {
  let bytes = 0;
  const end = (): void => {
    clearTimeout(timer);
    request.off('data', count).off('end', end).off('close', end).pause();
    done();
  };
  const count = (chunk: Buffer): void => {
    bytes += chunk.length;
    if (bytes > DISCARDED.bytes) end();
  };
  const timer = setTimeout(end, DISCARDED.ms);
  request.on('error', () => undefined);
  request.on('data', count).on('end', end).on('close', end).resume();
}
