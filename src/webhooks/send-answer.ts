import type { IncomingMessage, ServerResponse } from 'node:http';
import { performance } from 'node:perf_hooks';
import { Arrival } from '../runtime/arrival.ts';
import { TokenBucket } from '../runtime/token-bucket.ts';
import { type Problem, problemJson } from './problem.ts';
import { flowAtOnce, isScattered } from './receive-body.ts';

/** How long, and how much, of a body is read and thrown away. */
const DISCARD_MS = 3_000;
const DISCARD_BYTES = 16 * 1024 * 1024;
/** The same for those who are refused again and again. */
const DISCARD_LITTLE_BYTES = 64 * 1024;
/** What is thrown away beyond that, of all requests: large bodies of strangers cost a hundredth of
 * a CPU. */
const patience = new TokenBucket({
  burst: 32 * 1024 * 1024,
  perSecond: 2 * 1024 * 1024,
  nowMs: performance.now(),
});
const discarded = new WeakSet<IncomingMessage>();
/** Statuses after which the connection ends: what follows on it can't be trusted to be a request,
 * or nobody wants it. */
const CLOSING = new Set([401, 403, 404, 405, 413, 503]);

/** Answers with a problem.
 * @param more  further members of the answer */
export function sendProblem(
  request: IncomingMessage,
  response: ServerResponse,
  problem: Problem,
  more: object = {},
): void {
  const { status, retryAfterSeconds } = problem;
  if (retryAfterSeconds !== undefined) response.setHeader('retry-after', retryAfterSeconds);
  if (status === 401) response.setHeader('www-authenticate', 'Bearer');
  if (CLOSING.has(status) || !request.complete) response.setHeader('connection', 'close');
  discardBody(request, true);
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
  const timer = setTimeout(() => response.end(), DISCARD_MS);
  const end = (): void => {
    clearTimeout(timer);
    response.end();
  };
  request.once('end', end).once('close', end).resume();
}

/** Throws the rest of a body away, at once, so that it takes no memory while its sender waits for
 * the refusal. A client that still sends would take the end of the connection for an error, and
 * not see the answer; but beyond a size, or where many do so, the connection ends.
 * @param isPatient  whether 16 MiB are read, or little */
export function discardBody(request: IncomingMessage, isPatient: boolean): void {
  if (request.complete || request.destroyed || discarded.has(request)) return;
  discarded.add(request);
  const maxBytes = isPatient ? DISCARD_BYTES : DISCARD_LITTLE_BYTES;
  const arrival = new Arrival();
  const count = (chunk: Buffer): void => {
    arrival.add(chunk);
    if (arrival.bytes > maxBytes || isScattered(arrival) || !mayDiscard(arrival.bytes, chunk))
      request.socket.destroy();
  };
  request.on('error', () => undefined);
  request.on('data', count).resume();
  flowAtOnce(request);
}

function mayDiscard(bytes: number, chunk: Buffer): boolean {
  if (bytes <= DISCARD_LITTLE_BYTES) return true;
  const nowMs = performance.now();
  if (patience.waitMs(nowMs) > 0) return false;
  patience.charge(chunk.length, nowMs);
  return true;
}
