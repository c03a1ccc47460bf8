import { constants, type ServerHttp2Stream } from 'node:http2';
import { Code, type CsiError } from '../csi/status.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { CallerConnections } from './caller-connections.ts';
import type { AwaitedStep, ConnectionReaper } from './connection-reaper.ts';
import type { Forwarder, GatewayReply, InboundCall } from './forwarder.ts';
import { type HeaderPairs, joinChunks } from './grpc-wire.ts';
import { type HealthService, isHealthPath } from './health-service.ts';
import { rejectHttp, writeReply } from './write-reply.ts';

export interface RequestReceiverOptions {
  readonly callers: CallerConnections;
  readonly forwarder: Forwarder;
  readonly health: HealthService;
  readonly reaper: ConnectionReaper;
  /** Largest request accepted. */
  readonly maxMessageBytes: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** gRPC's hard limit for the metadata of a call. Enforced here, because a
 * SETTINGS_MAX_HEADER_LIST_SIZE binds only callers that acknowledge it. */
const MAX_METADATA_BYTES = 16 * 1024;

/** Receives requests within limits of size, time and number, and passes complete ones to the health
 * service or the forwarder. */
export class RequestReceiver {
  readonly #options: RequestReceiverOptions;
  /** Calls at the forwarder. */
  readonly #calls = new Set<AbortController>();
  /** Bytes in the buffers of all requests. */
  readonly #memory = { bytes: 0 };
  #onIdle: () => void = () => undefined;

  constructor(options: RequestReceiverOptions) {
    this.#options = options;
  }

  /** Number of calls under way. */
  get runningCalls(): number {
    return this.#calls.size;
  }

  /** Resolves when no call is under way, or after `ms`. */
  async waitUntilIdle(ms: number): Promise<void> {
    if (this.#calls.size === 0) return;
    const done = new AbortController();
    this.#onIdle = (): void => done.abort();
    await this.#options.clock.sleep(ms, done.signal);
  }

  /** Answers every call under way with that error, ambiguous. */
  abortCalls(reason: CsiError): void {
    for (const call of this.#calls) call.abort(reason);
  }

  /** Ends a call whose caller was too slow. */
  endLateCall(stream: ServerHttp2Stream, step: AwaitedStep): void {
    const { forwarder, reaper } = this.#options;
    if (step === 'answer') {
      stream.close(constants.NGHTTP2_CANCEL);
      return reaper.enterPhase(stream, 'reset');
    }
    const details = 'not forwarded: the request did not arrive in time';
    if (stream.headersSent || stream.destroyed) return reaper.enterPhase(stream, 'answer');
    this.#refuse(stream, forwarder.refuse('slow', Code.DeadlineExceeded, details));
  }

  /** Takes a call whose headers have arrived. */
  receive(stream: ServerHttp2Stream, headers: HeaderPairs): void {
    const { forwarder, log, reaper } = this.#options;
    // 'close' reports what a stream error means for the call. Without this listener the error would
    // end the process.
    stream.on('error', (error) => log.trace({ err: error }, 'stream error'));
    reaper.addCall(stream);
    // This call was one too many, so the reaper has just ended its connection.
    if (stream.destroyed) return;
    const httpStatus = findHttpError(headers);
    if (httpStatus !== undefined) {
      rejectHttp(stream, httpStatus);
      return reaper.enterPhase(stream, 'answer');
    }
    if (countBytes(headers) > MAX_METADATA_BYTES) {
      const details = `not forwarded: more than ${MAX_METADATA_BYTES} bytes of metadata`;
      this.#refuse(stream, forwarder.refuse('too-large', Code.ResourceExhausted, details));
      return void stream.resume();
    }
    this.#readRequest(stream, headers);
  }

  #readRequest(stream: ServerHttp2Stream, headers: HeaderPairs): void {
    const { callers, clock, forwarder, health, maxMessageBytes, reaper } = this.#options;
    const path = findHeader(headers, ':path') ?? '';
    const caller = callers.findCaller(stream);
    const gone = new AbortController();
    const call = {
      path,
      headers,
      receivedMs: clock.nowMs(),
      signal: gone.signal,
      caller: caller?.name ?? '',
      connection: stream.session ?? stream,
    };
    const buffer = new RequestBuffer(this.#memory);
    // The rest of a refused request is read and discarded; callers stop sending after the answer.
    const refuse = (reply: GatewayReply): void => {
      buffer.clear();
      this.#refuse(stream, reply);
    };
    stream.on('close', () => {
      buffer.clear();
      // Only for calls at the forwarder: an abort costs more than the rest of a call's bookkeeping.
      if (this.#calls.has(gone)) gone.abort('the caller is gone');
    });
    stream.on('data', (chunk: Buffer) => {
      buffer.receivedBytes += chunk.length;
      if (buffer.receivedBytes > 4 * maxMessageBytes)
        return stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
      if (stream.headersSent) return;
      if (buffer.receivedBytes > maxMessageBytes + 5) {
        const details =
          `the request of ${path.slice(0, 200)} is larger than ${maxMessageBytes} bytes: ` +
          `raise the gateway's --max-message-bytes`;
        return refuse(forwarder.refuse('too-large', Code.ResourceExhausted, details));
      }
      // A single request may always fill its buffer; all requests together may take twice as much.
      const totalBytes = this.#memory.bytes + chunk.length;
      if (totalBytes > 2 * maxMessageBytes + 10 && this.#memory.bytes > buffer.bytes)
        return refuse(
          forwarder.refuseFull('busy', 'the requests that it receives reach its memory limit'),
        );
      buffer.add(chunk);
    });
    stream.on('end', () => {
      if (stream.headersSent || stream.destroyed) return;
      const body = joinChunks(buffer.chunks);
      reaper.enterPhase(stream, 'work');
      if (!isHealthPath(path)) return void this.#forward(stream, { ...call, body }, gone);
      if (health.handle(stream, path, body)) reaper.enterPhase(stream, 'answer');
    });
    // Callers that may not call may still use the health service.
    if (caller?.refusal !== undefined && !isHealthPath(path))
      refuse(forwarder.refuse('caller', caller.refusal.code, caller.refusal.details));
  }

  #refuse(stream: ServerHttp2Stream, reply: GatewayReply): void {
    writeReply(stream, reply);
    this.#options.reaper.enterPhase(stream, 'answer');
  }

  async #forward(
    stream: ServerHttp2Stream,
    call: InboundCall,
    gone: AbortController,
  ): Promise<void> {
    this.#calls.add(gone);
    try {
      writeReply(stream, await this.#options.forwarder.forward(call));
      this.#options.reaper.enterPhase(stream, 'answer');
    } catch (error) {
      this.#options.log.error(
        { err: error, method: call.path.slice(0, 200) },
        'forwarding failed: a defect of sutler, please report it',
      );
      stream.close(constants.NGHTTP2_INTERNAL_ERROR);
    } finally {
      this.#calls.delete(gone);
      if (this.#calls.size === 0) this.#onIdle();
    }
  }
}

/** The body of one request while it arrives. */
class RequestBuffer {
  /** Bytes that have arrived, including discarded ones. */
  receivedBytes = 0;
  /** Bytes in this buffer. */
  bytes = 0;
  readonly chunks: Buffer[] = [];
  readonly #memory: { bytes: number };

  /** @param memory  counts the bytes in all buffers */
  constructor(memory: { bytes: number }) {
    this.#memory = memory;
  }

  add(chunk: Buffer): void {
    this.chunks.push(chunk);
    this.bytes += chunk.length;
    this.#memory.bytes += chunk.length;
  }

  clear(): void {
    this.#memory.bytes -= this.bytes;
    this.bytes = 0;
    this.chunks.length = 0;
  }
}

function countBytes(headers: HeaderPairs): number {
  return headers.reduce((bytes, [name, value]) => bytes + name.length + value.length, 0);
}

function findHeader(headers: HeaderPairs, wanted: string): string | undefined {
  return headers.find(([name]) => name === wanted)?.[1];
}

/** The HTTP status for a request that is not gRPC; undefined if it is. */
function findHttpError(headers: HeaderPairs): number | undefined {
  if (findHeader(headers, ':method') !== 'POST') return 405;
  const isGrpc = findHeader(headers, 'content-type')?.startsWith('application/grpc') === true;
  return isGrpc ? undefined : 415;
}
