import type { IncomingMessage } from 'node:http';
import { Arrival } from '../runtime/arrival.ts';
import type { RequestMemory } from '../runtime/request-memory.ts';
import { RequestProblem } from './problem.ts';

/** What a body may cost. */
export interface BodyLimits {
  readonly maxBytes: number;
  readonly memory: RequestMemory;
  /** For whom the memory is counted. */
  readonly owner: string;
}

const FREE_PARTS = 64;
const MIN_PART_BYTES = 128;

/** The client ended the connection before the request was complete: nobody waits for an answer. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone';
}

/** Receives the bytes of a body as they are. How long that may take, the server limits.
 * @throws RequestProblem, ClientGone */
export function receiveBody(request: IncomingMessage, limits: BodyLimits): Promise<Buffer> {
  const { maxBytes, memory, owner } = limits;
  if (Number(request.headers['content-length'] ?? 0) > maxBytes)
    return Promise.reject(tooLarge(maxBytes));
  return new Promise((resolve, reject) => {
    const arrival = new Arrival();
    const buffer = memory.open(owner, () => fail(tooManyAtOnce()));
    const fail = (error: Error): void => {
      stop();
      buffer.clear();
      reject(error);
    };
    const onData = (chunk: Buffer): void => {
      arrival.add(chunk);
      if (arrival.bytes > maxBytes) fail(tooLarge(maxBytes));
      else if (isScattered(arrival)) fail(scattered());
      else buffer.add(chunk);
    };
    const onEnd = (): void => {
      stop();
      resolve(buffer.take());
    };
    const onGone = (): void => fail(new ClientGone('the client ended the connection'));
    const stop = (): void => {
      request.off('data', onData).off('end', onEnd).off('close', onGone).off('error', onGone);
      // It may report the end of the connection once more.
      request.on('error', () => undefined);
    };
    request.on('data', onData).on('end', onEnd).on('close', onGone).on('error', onGone);
    flowAtOnce(request);
  });
}

/** Has the parts of a body given to the listeners as they are parsed. Otherwise all that has been
 * received, which may be ten thousand chunks of a byte, is parsed before the first is looked at. */
export function flowAtOnce(request: IncomingMessage): void {
  request.read(0);
}

/** Whether a body arrives in needlessly many parts: a chunk of one byte costs as much as one of
 * hundreds. The server itself makes parts of 512 bytes. */
export function isScattered({ frames, bytes }: Arrival): boolean {
  return frames > FREE_PARTS + bytes / MIN_PART_BYTES;
}

function tooLarge(maxBytes: number): RequestProblem {
  const detail = `the body may have ${maxBytes} bytes`;
  return new RequestProblem({ status: 413, detail, field: 'body' });
}

function tooManyAtOnce(): RequestProblem {
  const detail = 'too many large requests at once: try again';
  return new RequestProblem({ status: 503, detail, retryAfterSeconds: 1 });
}

function scattered(): RequestProblem {
  const detail = 'the body arrives in too many small parts';
  return new RequestProblem({ status: 400, detail, field: 'body' });
}
