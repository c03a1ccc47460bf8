import { constants, type ServerHttp2Stream } from 'node:http2';
import { CANCELED_DETAILS, Code, CsiError } from '../csi/status.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { writeReply, rejectHttp } from './write-reply.ts';
import type { CallerConnections } from './caller-connections.ts';
import type { Forwarder, InboundCall } from './forwarder.ts';
import { isHealthPath, type HealthService } from './health-service.ts';
import type { ConnectionReaper, AwaitedStep } from './connection-reaper.ts';
import type { HeaderPairs } from './grpc-wire.ts';

export interface RequestReceiverOptions {
  readonly callers: CallerConnections;
  readonly forwarder: Forwarder;
  readonly health: HealthService;
  readonly reaper: ConnectionReaper;
  /** Largest request taken. */
  readonly maxMessageBytes: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Metadata of one call: gRPC's own hard limit. Not a SETTINGS_MAX_HEADER_LIST_SIZE, which binds
 * only callers that acknowledge it. */
const MAX_METADATA_BYTES = 16 * 1024;
const CALLER_GONE = new CsiError({ code: Code.Canceled, details: CANCELED_DETAILS, method: '' });

/** Takes requests in, within limits of size, time and number, and hands whole ones to the
 * forwarder. */
export class RequestReceiver {
  readonly #options: RequestReceiverOptions;
  /** Calls that the forwarder works on. */
  readonly #calls = new Set<AbortController>();
  #bufferedBytes = 0;
  #onIdle: () => void = () => undefined;

  constructor(options: RequestReceiverOptions) {
    this.#options = options;
  }

  /** Calls under way. */
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

  /** A caller was waited for too long. */
  endLateCall(stream: ServerHttp2Stream, wait: AwaitedStep): void {
    const { forwarder, reaper } = this.#options;
    if (wait === 'answer') {
      stream.close(constants.NGHTTP2_CANCEL);
      return reaper.markReset(stream);
    }
    if (!stream.headersSent && !stream.destroyed)
      writeReply(
        stream,
        forwarder.refuse(
          'slow',
          Code.DeadlineExceeded,
          'not forwarded: the request did not arrive in time',
        ),
      );
    reaper.markAnswered(stream);
  }

  /** A call begins: its headers are here. */
  receive(stream: ServerHttp2Stream, headers: HeaderPairs): void {
    const { callers, clock, forwarder, health, log, maxMessageBytes, reaper } = this.#options;
    // What went wrong on a stream its 'close' tells; without a listener the error would end the
    // process.
    stream.on('error', (error) => log.trace({ err: error }, 'stream error'));
    reaper.addCall(stream);
    // With it there may have been too many: then its connection went.
    if (stream.destroyed) return;
    const wrong = wrongHttp(headers);
    if (wrong !== undefined) {
      rejectHttp(stream, wrong);
      return reaper.markAnswered(stream);
    }
    if (metadataBytes(headers) > MAX_METADATA_BYTES) {
      const details = `not forwarded: the call has more than ${MAX_METADATA_BYTES} bytes of metadata`;
      writeReply(stream, forwarder.refuse('too-large', Code.ResourceExhausted, details));
      stream.resume();
      return reaper.markAnswered(stream);
    }
    const gone = new AbortController();
    const path = headers.find(([name]) => name === ':path')?.[1] ?? '';
    const caller = callers.findCaller(stream);
    const call = {
      path,
      headers,
      receivedMs: clock.nowMs(),
      signal: gone.signal,
      caller: caller?.name ?? '',
    };
    const chunks: Buffer[] = [];
    let receivedBytes = 0;
    let keptBytes = 0;
    const drop = (): void => {
      this.#bufferedBytes -= keptBytes;
      keptBytes = 0;
      chunks.length = 0;
    };
    /** What still comes is read and forgotten; a caller stops when it has the answer. */
    const refuse = (...why: Parameters<Forwarder['refuse']>): void => {
      drop();
      writeReply(stream, forwarder.refuse(...why));
      reaper.markAnswered(stream);
    };
    stream.on('close', () => {
      drop();
      // Only while somebody works on it: an abort costs more than the rest of a call's bookkeeping.
      if (this.#calls.has(gone)) gone.abort(CALLER_GONE);
    });
    stream.on('data', (chunk: Buffer) => {
      receivedBytes += chunk.length;
      if (receivedBytes > 4 * maxMessageBytes)
        return stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
      if (stream.headersSent) return;
      if (receivedBytes > maxMessageBytes + 5) {
        const details = `the request of ${path.slice(0, 200)} is larger than ${maxMessageBytes} bytes: raise the gateway's --max-message-bytes`;
        return refuse('too-large', Code.ResourceExhausted, details);
      }
      // One message of any allowed size can always come; a crowd of them could not be held.
      if (
        this.#bufferedBytes + chunk.length > 2 * maxMessageBytes + 10 &&
        this.#bufferedBytes > keptBytes
      ) {
        return refuse(
          'busy',
          Code.Unavailable,
          'not forwarded: the gateway holds as many request bytes as it may',
        );
      }
      chunks.push(chunk);
      keptBytes += chunk.length;
      this.#bufferedBytes += chunk.length;
    });
    stream.on('end', () => {
      if (stream.headersSent || stream.destroyed) return;
      const body =
        chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks);
      reaper.markWorking(stream);
      if (!isHealthPath(path)) return void this.#serve(stream, { ...call, body }, gone);
      if (health.handle(stream, path, body)) reaper.markAnswered(stream);
    });
    // A certificate that our authority signed may ask how we are, not more.
    if (caller?.refusal !== undefined && !isHealthPath(path))
      refuse('caller', caller.refusal.code, caller.refusal.details);
  }

  async #serve(stream: ServerHttp2Stream, call: InboundCall, gone: AbortController): Promise<void> {
    this.#calls.add(gone);
    try {
      writeReply(stream, await this.#options.forwarder.forward(call));
      this.#options.reaper.markAnswered(stream);
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

function metadataBytes(headers: HeaderPairs): number {
  return headers.reduce((bytes, [name, value]) => bytes + name.length + value.length, 0);
}

/** The HTTP status for what is not gRPC. */
function wrongHttp(headers: HeaderPairs): number | undefined {
  const first = (wanted: string): string | undefined =>
    headers.find(([name]) => name === wanted)?.[1];
  if (first(':method') !== 'POST') return 405;
  return first('content-type')?.startsWith('application/grpc') === true ? undefined : 415;
}
