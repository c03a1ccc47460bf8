import { constants, type OutgoingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import { Code, type CsiError } from '../csi/status.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { CallerConnections } from './caller-connections.ts';
import type { AwaitedStep, ConnectionReaper } from './connection-reaper.ts';
import type { Forwarder, GatewayReply, InboundCall } from './forwarder.ts';
import type { HeaderPairs } from '../csi/grpc-wire.ts';
import { type HealthService, isHealthPath, MAX_HEALTH_BYTES } from './health-service.ts';
import type { Caller } from './identify-caller.ts';
import { Arrival } from '../runtime/arrival.ts';
import { type RequestBuffer, RequestMemory } from '../runtime/request-memory.ts';
import { rejectHttp, writeReply } from './write-reply.ts';

export interface RequestReceiverOptions {
  readonly callers: CallerConnections;
  readonly forwarder: Forwarder;
  readonly health: HealthService;
  readonly reaper: ConnectionReaper;
  /** Largest request accepted. */
  readonly maxRequestBytes: number;
  /** What the gateway says of itself in the trailers of each answer. */
  readonly facts: () => OutgoingHttpHeaders;
  readonly clock: Clock;
  readonly log: Logger;
}

/** What is known of a request when its headers have arrived. */
interface RequestHead {
  readonly path: string;
  readonly headers: HeaderPairs;
  readonly caller: Caller;
}

/** gRPC's hard limit for the metadata of a call. Enforced here, because a
 * SETTINGS_MAX_HEADER_LIST_SIZE binds only callers that acknowledge it. */
const MAX_METADATA_BYTES = 16 * 1024;
/** Calls that a caller who may not call may have open on one connection. */
const MAX_REFUSED_STREAMS = 16;
/** Bytes of a request that are read and discarded after it was refused. Callers stop sending when
 * they have the answer; until then, some is on its way. */
const DISCARD_BYTES = 4 * 1024 * 1024;

/** Receives requests within limits of size, time and number, and passes complete ones to the health
 * service or the forwarder. */
export class RequestReceiver {
  readonly #options: RequestReceiverOptions;
  /** Calls at the forwarder. */
  readonly #calls = new Set<AbortController>();
  readonly #memory: RequestMemory;
  /** What has arrived of the requests that are being received. */
  readonly #buffers = new WeakMap<ServerHttp2Stream, RequestBuffer>();
  #onIdle: () => void = () => undefined;

  constructor(options: RequestReceiverOptions) {
    this.#options = options;
    // A single request always fits; all requests together may take twice as much.
    this.#memory = new RequestMemory(2 * options.maxRequestBytes + 10);
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
    const { callers, log, reaper } = this.#options;
    // 'close' reports what a stream error means for the call. Without this listener the error would
    // end the process.
    stream.on('error', (error) => log.trace({ err: error }, 'stream error'));
    const caller = callers.findCaller(stream);
    // Its connection has ended: nobody waits for an answer, and nobody is known to have called.
    if (caller === undefined) return stream.close(constants.NGHTTP2_CANCEL);
    reaper.addCall(stream, caller.refusal === undefined ? Infinity : MAX_REFUSED_STREAMS);
    // This call was one too many, so the reaper has just ended its connection.
    if (stream.destroyed) return;
    const path = findHeader(headers, ':path') ?? '';
    this.#guard(stream, path, () => {
      const request = { path, headers, caller };
      if (!this.#refuseByHeaders(stream, request)) this.#readRequest(stream, request);
    });
  }

  /** Runs one step of a call. An error of sutler's own ends that call, and nothing else. */
  #guard(stream: ServerHttp2Stream, path: string, step: () => void): void {
    try {
      step();
    } catch (error) {
      this.#endFailedCall(stream, path, error);
    }
  }

  #endFailedCall(stream: ServerHttp2Stream, path: string, error: unknown): void {
    this.#options.log.error(
      { err: error, method: path.slice(0, 200) },
      'a call failed: a defect of sutler, please report it',
    );
    stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  }

  /** Answers a call whose body does not matter.
   * @returns whether it did */
  #refuseByHeaders(stream: ServerHttp2Stream, { path, headers, caller }: RequestHead): boolean {
    const { forwarder, reaper } = this.#options;
    const httpStatus = findHttpError(headers);
    if (httpStatus !== undefined) {
      rejectHttp(stream, httpStatus);
      reaper.enterPhase(stream, 'answer');
    } else if (countBytes(headers) > MAX_METADATA_BYTES) {
      const details = `not forwarded: more than ${MAX_METADATA_BYTES} bytes of metadata`;
      this.#refuse(stream, forwarder.refuse('too-large', Code.ResourceExhausted, details));
    } else if (caller.refusal !== undefined && !isHealthPath(path)) {
      // Callers that may not call may still use the health service.
      this.#refuse(stream, forwarder.refuse('caller', caller.refusal.code, caller.refusal.details));
    } else {
      return false;
    }
    const arrival = new Arrival();
    stream.on('data', (chunk: Buffer) => discard(stream, arrival, chunk));
    return true;
  }

  #readRequest(stream: ServerHttp2Stream, { path, headers, caller }: RequestHead): void {
    const { callers, clock, forwarder, health, reaper } = this.#options;
    const gone = new AbortController();
    const call = {
      path,
      headers,
      receivedMs: clock.nowMs(),
      signal: gone.signal,
      caller: caller.name,
      connection: stream.session ?? stream,
    };
    // Callers with a certificate share memory by their names, others by connection.
    const owner = caller.certificate === undefined ? call.connection : call.caller;
    const buffer = this.#memory.open(owner, () => {
      const why = 'the requests that it receives reach its memory limit';
      this.#refuse(stream, forwarder.refuseFull('busy', why));
    });
    this.#buffers.set(stream, buffer);
    const arrival = new Arrival();
    stream.on('close', () => {
      buffer.clear();
      // Only for calls at the forwarder: an abort costs more than the rest of a call's bookkeeping.
      if (this.#calls.has(gone)) gone.abort('the caller is gone');
    });
    stream.on('data', (chunk: Buffer) => {
      if (stream.headersSent) return discard(stream, arrival, chunk);
      arrival.add(chunk);
      const refusal = this.#checkArrival(arrival, path);
      if (refusal === undefined) buffer.add(chunk);
      else this.#refuse(stream, refusal);
    });
    stream.on('end', () => {
      if (stream.headersSent || stream.destroyed) return;
      // Since its headers arrived, the caller's certificate may have ended or lost its authority.
      const refusal = isHealthPath(path) ? undefined : callers.findCaller(stream)?.refusal;
      if (refusal !== undefined)
        return this.#refuse(stream, forwarder.refuse('caller', refusal.code, refusal.details));
      const body = buffer.take();
      reaper.enterPhase(stream, 'work');
      if (!isHealthPath(path)) return void this.#forward(stream, { ...call, body }, gone);
      this.#guard(stream, path, () => {
        if (health.handle(stream, path, body)) reaper.enterPhase(stream, 'answer');
      });
    });
  }

  /** The answer to a request that is too large, or that arrives in too many parts. */
  #checkArrival(arrival: Arrival, path: string): GatewayReply | undefined {
    const { forwarder, maxRequestBytes } = this.#options;
    const isHealth = isHealthPath(path);
    const maxBytes = isHealth ? MAX_HEALTH_BYTES : maxRequestBytes;
    const what = `not forwarded: the request of ${path.slice(0, 200)}`;
    if (arrival.bytes > maxBytes + 5) {
      const remedy = isHealth ? '' : `: raise the gateway's --max-request-bytes`;
      const details = `${what} is larger than ${maxBytes} bytes${remedy}`;
      return forwarder.refuse('too-large', Code.ResourceExhausted, details);
    }
    if (!arrival.isScattered) return undefined;
    const details = `${what} arrives in ${arrival.frames} parts of a few bytes; send larger ones`;
    return forwarder.refuse('malformed', Code.ResourceExhausted, details);
  }

  /** Answers a call that is not forwarded, and gives back the memory of its request. */
  #refuse(stream: ServerHttp2Stream, reply: GatewayReply): void {
    this.#buffers.get(stream)?.clear();
    writeReply(stream, reply, this.#options.facts());
    this.#options.reaper.enterPhase(stream, 'answer');
  }

  async #forward(
    stream: ServerHttp2Stream,
    call: InboundCall,
    gone: AbortController,
  ): Promise<void> {
    this.#calls.add(gone);
    try {
      const reply = await this.#options.forwarder.forward(call);
      if (reply.kind === 'driver') this.#options.reaper.prove(stream);
      writeReply(stream, reply, this.#options.facts());
      this.#options.reaper.enterPhase(stream, 'answer');
    } catch (error) {
      this.#endFailedCall(stream, call.path, error);
    } finally {
      this.#calls.delete(gone);
      if (this.#calls.size === 0) this.#onIdle();
    }
  }
}

/** Counts a part of a request that was refused, and resets the stream if its caller goes on and on
 * sending. */
function discard(stream: ServerHttp2Stream, arrival: Arrival, chunk: Buffer): void {
  arrival.add(chunk);
  arrival.discardedBytes += chunk.length;
  if (arrival.discardedBytes > DISCARD_BYTES || arrival.isScattered)
    stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
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
