import type { EventEmitter } from 'node:events';
import {
  constants,
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type OutgoingHttpHeaders,
} from 'node:http2';
import { CANCELED_DETAILS, Code, CsiError, DEADLINE_DETAILS } from '../csi/status.ts';
import { timerMs } from '../runtime/clock.ts';
import type { ResetLimiter } from './reset-limiter.ts';
import {
  decodeStatusMessage,
  getSingle,
  parseStatusCode,
  toPairs,
  unframeMessage,
  type HeaderPairs,
} from './grpc-wire.ts';

/** What became of a call to the driver. driver: the driver's own status, received whole. ambiguous:
 * it may or may not have acted. not-sent: not one byte went out. */
export type DriverAnswer =
  | {
      readonly kind: 'driver';
      readonly code: number;
      readonly details: string;
      /** Absent in an answer that is trailers only. */
      readonly headers: HeaderPairs | undefined;
      readonly trailers: HeaderPairs;
      /** One framed message, or nothing. */
      readonly body: Buffer;
    }
  | { readonly kind: 'ambiguous'; readonly code: number; readonly details: string }
  | { readonly kind: 'not-sent'; readonly code: number; readonly details: string };

export interface DriverRequest {
  /** "/csi.v1.Controller/CreateVolume". */
  readonly path: string;
  /** Request metadata, grpc-timeout included. */
  readonly headers: OutgoingHttpHeaders;
  /** The framed message, as it came. */
  readonly body: Buffer;
  /** Largest answer taken. */
  readonly maxBytes: number;
  /** For metrics: the volume is one of an in-tree plug-in; false where absent. */
  readonly migrated?: boolean;
  /** Our own watch over the call; absent = none. */
  readonly timeoutMs?: number;
  /** The caller gave up: the driver is told by RST_STREAM. A CsiError as its reason becomes the
   * answer. */
  readonly signal?: AbortSignal;
  /** The driver has nothing more to do with the call, which may be later than the answer: a call
   * that was given up is at work until its reset arrives. Called once, also where nothing was sent.
   */
  readonly onEnd?: (code: number) => void;
}

/** Sends one unary call and says honestly who made the status.
 *
 * This is node:http2 and not grpc-js, because grpc-js can't tell: its StatusObject for the driver's
 * plain trailers (grpc-status and grpc-message only) and for a status of its own making
 * (subchannel-call.ts: RST_STREAM, lost connection, too large, unparsable; client.ts: OK without
 * message) look the same, both with empty metadata, while trailers without grpc-status give a
 * made-up code *with* the peer's metadata. Here the driver has spoken only if a header block with
 * END_STREAM carried one numeric grpc-status on HTTP 200. */
export function callDriver(
  session: ClientHttp2Session,
  request: DriverRequest,
  resets: ResetLimiter,
): Promise<DriverAnswer> {
  let stream: ClientHttp2Stream;
  try {
    stream = session.request({
      ':method': 'POST',
      ':path': request.path,
      te: 'trailers',
      ...request.headers,
    });
  } catch (error) {
    // request() checks before it hands anything to nghttp2 (session closed, GOAWAY seen, header not
    // sendable).
    const code = error instanceof TypeError ? Code.InvalidArgument : Code.Unavailable;
    request.onEnd?.(code);
    return Promise.resolve({
      kind: 'not-sent',
      code,
      details: `${request.path} was not sent to the driver: ${error instanceof Error ? error.message : String(error)}`,
    });
  }
  return new Promise((resolve) => new ResponseReader(stream, request, { resolve, resets }));
}

class ResponseReader {
  readonly #stream: ClientHttp2Stream;
  readonly #request: DriverRequest;
  readonly #resolve: (answer: DriverAnswer) => void;
  readonly #resets: ResetLimiter;
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #chunks: Buffer[] = [];
  #receivedBytes = 0;
  #headers: HeaderPairs | undefined;
  #trailers: HeaderPairs | undefined;
  #settled = false;
  #code: number = Code.Unavailable;
  #fault: Error | undefined;

  constructor(
    stream: ClientHttp2Stream,
    request: DriverRequest,
    to: { readonly resolve: (answer: DriverAnswer) => void; readonly resets: ResetLimiter },
  ) {
    this.#stream = stream;
    this.#request = request;
    this.#resolve = to.resolve;
    this.#resets = to.resets;
    this.#timer =
      request.timeoutMs === undefined
        ? undefined
        : setTimeout(this.#late, timerMs(request.timeoutMs));
    request.signal?.addEventListener('abort', this.#gaveUp, { once: true });
    // The typings know neither rawHeaders nor that 'trailers' has flags as its second argument in
    // all releases.
    const events: EventEmitter = stream;
    events.on('response', (_headers: unknown, flags: number, raw: readonly string[]) => {
      this.#headers = toPairs(raw);
      if ((flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0) this.#trailers = this.#headers;
    });
    events.on(
      'trailers',
      (_headers: unknown, _flags: number, raw: readonly string[]) =>
        (this.#trailers = toPairs(raw)),
    );
    stream.on('data', this.#take);
    stream.on('end', this.#ended);
    stream.on('error', (error) => (this.#fault = error));
    stream.on('close', this.#closed);
    stream.end(request.body);
    if (request.signal?.aborted === true) this.#gaveUp();
  }

  readonly #take = (chunk: Buffer): void => {
    if (this.#settled) return;
    this.#receivedBytes += chunk.length;
    if (this.#receivedBytes > this.#request.maxBytes + 5) {
      const details = `the driver's answer to ${this.#request.path} is larger than ${this.#request.maxBytes} bytes: raise --max-message-bytes`;
      return this.#giveUp(Code.ResourceExhausted, details);
    }
    this.#chunks.push(chunk);
  };

  readonly #ended = (): void => {
    // Without END_STREAM headers the stream was cut or ended by DATA: 'close' tells which.
    if (this.#trailers === undefined) return;
    this.#settle(this.#judge(this.#trailers));
  };

  #judge(trailers: HeaderPairs): DriverAnswer {
    const { path } = this.#request;
    const headers = this.#headers ?? [];
    const httpStatus = getSingle(headers, ':status');
    const code = parseStatusCode(getSingle(trailers, 'grpc-status'));
    if (
      httpStatus !== '200' ||
      getSingle(headers, 'content-type')?.startsWith('application/grpc') !== true ||
      code === undefined
    ) {
      const what = code === undefined ? 'has no gRPC status' : 'is not gRPC';
      return {
        kind: 'ambiguous',
        code: Code.Unknown,
        details: `the driver's answer to ${path} ${what} (HTTP ${httpStatus ?? '?'})`,
      };
    }
    const body =
      this.#chunks.length === 1 && this.#chunks[0] !== undefined
        ? this.#chunks[0]
        : Buffer.concat(this.#chunks);
    const whole = unframeMessage(body) !== undefined;
    if (code === Code.OK && !whole) {
      const details = `the driver's answer to ${path} says OK but does not hold one message (${body.length} bytes)`;
      return { kind: 'ambiguous', code: Code.Internal, details };
    }
    return {
      kind: 'driver',
      code,
      details: decodeStatusMessage(getSingle(trailers, 'grpc-message') ?? ''),
      headers: trailers === this.#headers ? undefined : this.#headers,
      trailers,
      body: whole ? body : Buffer.alloc(0),
    };
  }

  readonly #closed = (): void => {
    const { path } = this.#request;
    const why = this.#fault?.message ?? `RST_STREAM ${this.#stream.rstCode}`;
    this.#settle({
      kind: 'ambiguous',
      code: Code.Unavailable,
      details: `the driver ended ${path} without a status (${why})`,
    });
    this.#request.onEnd?.(this.#code);
  };

  readonly #late = (): void => this.#giveUp(Code.DeadlineExceeded, DEADLINE_DETAILS);

  readonly #gaveUp = (): void => {
    const reason: unknown = this.#request.signal?.reason;
    if (reason instanceof CsiError) this.#giveUp(reason.code, reason.details);
    else this.#giveUp(Code.Canceled, CANCELED_DETAILS);
  };

  #giveUp(code: number, details: string): void {
    this.#settle({ kind: 'ambiguous', code, details });
    this.#resets.reset(this.#stream);
  }

  #settle(answer: DriverAnswer): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#code = answer.code;
    this.#chunks.length = 0;
    clearTimeout(this.#timer);
    this.#request.signal?.removeEventListener('abort', this.#gaveUp);
    this.#resolve(answer);
  }
}
