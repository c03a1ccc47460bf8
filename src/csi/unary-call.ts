import type { EventEmitter } from 'node:events';
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  constants,
  type OutgoingHttpHeaders,
} from 'node:http2';
import { timerMs } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import {
  decodeStatusMessage,
  formatTimeout,
  frameMessage,
  getSingle,
  type HeaderPairs,
  parseStatusCode,
  toPairs,
  unframeMessage,
} from './grpc-wire.ts';
import { CANCELED_DETAILS, Code, CsiError, DEADLINE_DETAILS } from './status.ts';

/** The server of a call. */
export interface Peer {
  /** Its name in texts: "the driver". */
  readonly name: string;
  readonly headers: OutgoingHttpHeaders;
  /** Largest answer to a method that may return a list; see answerLimit. */
  readonly maxBytes: number;
  /** Appended to the error about a larger answer: what to do. */
  readonly ifLarger: string;
}

/** A complete response with the peer's own status. */
export interface UnaryResponse {
  readonly kind: 'answered';
  readonly code: number;
  readonly details: string;
  readonly headers: HeaderPairs;
  readonly trailers: HeaderPairs;
  /** Empty unless the code is OK. */
  readonly message: Buffer;
}

/** Result of a call. ambiguous: the peer may or may not have acted. not-sent: nothing was sent. */
export type UnaryAnswer =
  | UnaryResponse
  | {
      readonly kind: 'ambiguous' | 'not-sent';
      readonly code: number;
      readonly details: string;
    };

export interface UnaryRequest {
  /** "/csi.v1.Controller/CreateVolume". */
  readonly path: string;
  /** Request metadata. */
  readonly headers: OutgoingHttpHeaders;
  readonly message: Uint8Array;
  /** The peer's deadline. After it, the call is cancelled here too. No deadline if absent. */
  readonly timeoutMs?: number | undefined;
  /** Cancels the call: the peer gets an RST_STREAM frame. If the reason is a CsiError, it becomes
   * the answer. */
  readonly signal?: AbortSignal | undefined;
}

/** Sends one unary call and finds out who made its status.
 *
 * Uses node:http2 instead of grpc-js, which can't tell who made a status. For the peer's plain
 * trailers (grpc-status and grpc-message only) its StatusObject is the same as for a status of its
 * own, with empty metadata (subchannel-call.ts: RST_STREAM, lost connection, too large, can't be
 * parsed; client.ts: OK without message). For trailers without grpc-status it makes up a code and
 * adds the peer's metadata. Here a status is the peer's only if a header block with END_STREAM
 * carried one numeric grpc-status on HTTP 200. grpc-js also takes more than twice the CPU. */
export function callUnary(
  session: ClientHttp2Session,
  request: UnaryRequest,
  peer: Peer,
): Promise<UnaryAnswer> {
  const { path, headers, timeoutMs } = request;
  let stream: ClientHttp2Stream;
  try {
    stream = session.request({
      ':method': 'POST',
      ':path': path,
      ...peer.headers,
      ...headers,
      ...(timeoutMs === undefined ? {} : { 'grpc-timeout': formatTimeout(timeoutMs) }),
      'content-type': 'application/grpc',
      te: 'trailers',
    });
  } catch (error) {
    // Node throws before it sends anything: a closed session, a GOAWAY, or an invalid header.
    const code = error instanceof TypeError ? Code.InvalidArgument : Code.Unavailable;
    const details = `${path} was not sent to ${peer.name}: ${messageOf(error)}`;
    return Promise.resolve({ kind: 'not-sent', code, details });
  }
  return new Promise((resolve) => new ResponseReader(stream, request, peer, resolve));
}

/** Sends the request body and reads the response. The call ends at the first of these: complete
 * trailers, a closed stream, a response that is too large, the timeout, the signal. */
class ResponseReader {
  readonly #stream: ClientHttp2Stream;
  readonly #request: UnaryRequest;
  readonly #peer: Peer;
  readonly #resolve: (answer: UnaryAnswer) => void;
  #timer: NodeJS.Timeout | undefined;
  readonly #chunks: Buffer[] = [];
  #receivedBytes = 0;
  #headers: HeaderPairs | undefined;
  #trailers: HeaderPairs | undefined;
  #hasEnded = false;
  #streamError: Error | undefined;

  constructor(
    stream: ClientHttp2Stream,
    request: UnaryRequest,
    peer: Peer,
    resolve: (answer: UnaryAnswer) => void,
  ) {
    this.#stream = stream;
    this.#request = request;
    this.#peer = peer;
    this.#resolve = resolve;
    const { timeoutMs, signal } = request;
    const onTimeout = (): void => this.#cancel(Code.DeadlineExceeded, DEADLINE_DETAILS);
    if (timeoutMs !== undefined) this.#timer = setTimeout(onTimeout, timerMs(timeoutMs));
    signal?.addEventListener('abort', this.#onAbort, { once: true });
    // Node's types have no rawHeaders, and for 'trailers' no flags as second argument.
    const events: EventEmitter = stream;
    events.on('response', (_headers: unknown, flags: number, raw: readonly string[]) => {
      this.#headers = toPairs(raw);
      if ((flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0) this.#trailers = this.#headers;
    });
    events.on('trailers', (_headers: unknown, _flags: number, raw: readonly string[]) => {
      this.#trailers = toPairs(raw);
    });
    stream.on('data', (chunk: Buffer) => this.#onData(chunk));
    // Without trailers the stream was cut off or ended by a DATA frame. Then 'close' follows.
    stream.on('end', () => {
      if (this.#trailers !== undefined) this.#finish(this.#parseResponse(this.#trailers));
    });
    stream.on('error', (error) => (this.#streamError = error));
    stream.on('close', () => this.#onClose());
    stream.end(frameMessage(request.message));
    if (signal?.aborted === true) this.#onAbort();
  }

  #onData(chunk: Buffer): void {
    if (this.#hasEnded) return;
    const { ifLarger } = this.#peer;
    const maxBytes = answerLimit(this.#request.path, this.#peer.maxBytes);
    this.#receivedBytes += chunk.length;
    if (this.#receivedBytes <= maxBytes + 5) return void this.#chunks.push(chunk);
    const remedy = maxBytes === this.#peer.maxBytes ? ifLarger : '';
    const details = `${this.#what} is larger than ${maxBytes} bytes${remedy}`;
    this.#cancel(Code.ResourceExhausted, details);
  }

  /** Name of the answer in texts. */
  get #what(): string {
    return `${this.#peer.name}'s answer to ${this.#request.path}`;
  }

  #parseResponse(trailers: HeaderPairs): UnaryAnswer {
    const code = readStatusCode(this.#headers ?? [], trailers);
    if (typeof code === 'string')
      return createAmbiguousAnswer(Code.Unknown, `${this.#what} ${code}`);
    const body = Buffer.concat(this.#chunks);
    const message = code === Code.OK ? unframeMessage(body) : Buffer.alloc(0);
    if (message === undefined) {
      const what = 'says OK but does not contain exactly one uncompressed message';
      const details = `${this.#what} ${what} (${body.length} bytes)`;
      return createAmbiguousAnswer(Code.Internal, details);
    }
    return {
      kind: 'answered',
      code,
      details: decodeStatusMessage(getSingle(trailers, 'grpc-message') ?? ''),
      headers: trailers === this.#headers ? [] : (this.#headers ?? []),
      trailers,
      message,
    };
  }

  #onClose(): void {
    const reason = this.#streamError?.message ?? `RST_STREAM ${this.#stream.rstCode}`;
    const httpStatus = getSingle(this.#headers ?? [], ':status') ?? '200';
    const shown = httpStatus === '200' ? reason : `HTTP ${httpStatus}`;
    const details = `${this.#peer.name} ended ${this.#request.path} without a status (${shown})`;
    this.#finish(createAmbiguousAnswer(Code.Unavailable, details));
  }

  readonly #onAbort = (): void => {
    const reason: unknown = this.#request.signal?.reason;
    if (reason instanceof CsiError) this.#cancel(reason.code, reason.details);
    else this.#cancel(Code.Canceled, CANCELED_DETAILS);
  };

  #cancel(code: number, details: string): void {
    this.#finish(createAmbiguousAnswer(code, details));
    this.#stream.close(constants.NGHTTP2_CANCEL);
  }

  #finish(answer: UnaryAnswer): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#chunks.length = 0;
    clearTimeout(this.#timer);
    this.#request.signal?.removeEventListener('abort', this.#onAbort);
    this.#resolve(answer);
  }
}

/** gRPC's default, which upstream keeps for all methods. */
const MAX_ANSWER_BYTES = 4 * 1024 * 1024;

/** Returns the largest accepted answer to a call. In csi.v1 only lists, such as ListVolumes', grow
 * with the number of volumes.
 * @param maxBytes  for lists, and for methods that csi.v1 does not have */
function answerLimit(path: string, maxBytes: number): number {
  const isAboutOne = /^\/csi\.v1\.\w+\/(?!List)/.test(path);
  return isAboutOne ? Math.min(maxBytes, MAX_ANSWER_BYTES) : maxBytes;
}

function createAmbiguousAnswer(code: number, details: string): UnaryAnswer {
  return { kind: 'ambiguous', code, details };
}

/** Reads the peer's status code, or says why this is not a gRPC response with a status. */
function readStatusCode(headers: HeaderPairs, trailers: HeaderPairs): number | string {
  const code = parseStatusCode(getSingle(trailers, 'grpc-status'));
  const httpStatus = getSingle(headers, ':status');
  const isGrpc = getSingle(headers, 'content-type')?.startsWith('application/grpc') === true;
  if (code !== undefined && httpStatus === '200' && isGrpc) return code;
  const problem = code === undefined ? 'has no gRPC status' : 'is not gRPC';
  return `${problem} (HTTP ${httpStatus ?? '?'})`;
}
