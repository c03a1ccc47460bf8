import {
  Code,
  DEADLINE_DETAILS,
  FAILOVER_METADATA,
  MIGRATED_METADATA,
  NOT_AFTER_METADATA,
} from '../csi/status.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { DriverAnswer, DriverRequest } from './driver-call.ts';
import type { CallLimiter } from './call-limiter.ts';
import type { SingleFlight, Ticket, VolumeKey } from './single-flight.ts';
import type { GatewayMetrics, RefusalReason } from './metrics.ts';
import type { CallRecord } from './log-call.ts';
import { readCreatedHandle, isSingleFlight, readVolumeKey } from './volume-key.ts';
import {
  decompressMessage,
  formatTimeout,
  getSingle,
  parseTimeoutMs,
  stripHopHeaders,
  unframeMessage,
  type HeaderPairs,
} from './grpc-wire.ts';

/** A call as a caller sent it. */
export interface InboundCall {
  readonly path: string;
  readonly headers: HeaderPairs;
  readonly body: Buffer;
  /** When its headers arrived. */
  readonly receivedMs: number;
  /** Who sent it, for log lines. */
  readonly caller: string;
  /** Aborts when the caller is gone. */
  readonly signal: AbortSignal;
}

/** What the caller gets: the driver's own answer, or a status of the gateway's. */
export type Reply =
  | { readonly kind: 'driver'; readonly answer: DriverAnswer & { readonly kind: 'driver' } }
  | {
      readonly kind: 'gateway';
      readonly code: number;
      readonly details: string;
      readonly notForwarded: boolean;
      readonly draining?: number;
    };

/** The part of DriverConnection that forwarding needs. */
export interface DriverPort {
  findTrouble(path: string): string | undefined;
  send(request: DriverRequest): Promise<DriverAnswer>;
}

export interface ForwarderOptions {
  readonly driver: DriverPort;
  /** Paths that pass; undefined = all. */
  readonly allowed: ReadonlySet<string> | undefined;
  readonly inFlight: SingleFlight;
  readonly caps: CallLimiter;
  readonly maxMessageBytes: number;
  readonly clock: Clock;
  readonly log: Logger;
  /** Logs each call with its messages (-v=5); undefined = nobody does. */
  readonly logCall: ((log: Logger, call: CallRecord) => void) | undefined;
  readonly metrics: GatewayMetrics;
}

/** Callers that choose come twice a second (ingest/decide-failover.ts). */
const WATCHED_MS = 2_000;

/** Decides, call by call, whether it goes to the driver, and passes on what comes back.
 * Every "not forwarded" below is said before, never after, the driver's stream was opened. */
export class Forwarder {
  readonly #options: ForwarderOptions;
  #draining = false;
  /** When a caller that chooses between gateways was here last. */
  #electedMs = -Infinity;
  readonly #told = new AbortController();

  constructor(options: ForwarderOptions) {
    this.#options = options;
  }

  /** From now on new calls are refused, not forwarded. */
  drain(): void {
    this.#draining = true;
  }

  /** Whether somebody who chooses between gateways comes here regularly, and should hear that this
   * one is drained. */
  get isProbedForFailover(): boolean {
    return this.#options.clock.nowMs() - this.#electedMs < WATCHED_MS;
  }

  /** Aborts when such a caller was told that nothing is under way here any more. */
  get drainReported(): AbortSignal {
    return this.#told.signal;
  }

  /** Never rejects. */
  async forward(call: InboundCall): Promise<Reply> {
    const reply = await this.#decide(call);
    if (this.#options.logCall !== undefined) this.#log(call, reply);
    return reply;
  }

  /** A status of the gateway's, nothing sent. */
  refuse(
    reason: RefusalReason,
    code: number,
    details: string,
  ): Reply & { readonly kind: 'gateway' } {
    this.#options.metrics.countRefusal(reason);
    return { kind: 'gateway', code, details, notForwarded: true };
  }

  async #decide(call: InboundCall): Promise<Reply> {
    const { allowed, caps, clock, driver, inFlight, maxMessageBytes } = this.#options;
    const { path } = call;
    if (allowed !== undefined && !allowed.has(path)) {
      return this.refuse(
        'method',
        Code.Unimplemented,
        `${path.slice(0, 200)} does not pass this gateway (its --allow-all lets every method pass)`,
      );
    }
    const isElecting = call.headers.some(([name]) => name === FAILOVER_METADATA);
    if (isElecting) this.#electedMs = clock.nowMs();
    if (this.#draining) {
      const running = inFlight.size;
      if (isElecting && running === 0) this.#told.abort();
      return {
        ...this.refuse('draining', Code.Unavailable, 'the gateway is shutting down'),
        draining: running,
      };
    }
    const down = driver.findTrouble(path);
    if (down !== undefined) return this.refuse('driver-down', Code.Unavailable, down);
    if (unframeMessage(call.body) === undefined)
      return this.refuse('malformed', Code.Internal, 'a unary call has exactly one message');
    const key = this.#keyOf(call);
    if (key === 'unreadable')
      return this.refuse('malformed', Code.InvalidArgument, `the request of ${path} can't be read`);

    const limits = this.#limits(call, clock.nowMs());
    if ('refused' in limits) return limits.refused;
    let ticket: Ticket | undefined;
    if (key !== undefined) {
      const begun = inFlight.acquire(key, path);
      if (!begun.ok)
        return this.refuse(
          'in-flight',
          Code.Aborted,
          `${begun.running} of the same volume is under way`,
        );
      ticket = begun.ticket;
    }
    const place = caps.acquire(path);
    if ('why' in place) {
      ticket?.release();
      const details = `not forwarded: ${place.limit} calls of ${path.slice(0, 200)} are under way, as many as --${place.why} allows`;
      return this.refuse(place.why, Code.Unavailable, details);
    }
    const answer = await driver.send({
      path,
      headers: {
        ...stripHopHeaders(call.headers),
        ...(limits.timeoutMs === undefined
          ? {}
          : { 'grpc-timeout': formatTimeout(limits.timeoutMs) }),
      },
      body: call.body,
      maxBytes: maxMessageBytes,
      migrated: getSingle(call.headers, MIGRATED_METADATA) === 'true',
      signal: call.signal,
      onEnd: (code) => place.release(code),
      ...(limits.timeoutMs === undefined ? {} : { timeoutMs: limits.timeoutMs }),
    });
    if (answer.kind === 'driver' && answer.code === Code.OK && key !== undefined)
      this.#learn(path, key, answer);
    ticket?.release();
    if (answer.kind === 'driver') return { kind: 'driver', answer };
    if (answer.kind === 'not-sent') return this.refuse('driver-down', answer.code, answer.details);
    return { kind: 'gateway', code: answer.code, details: answer.details, notForwarded: false };
  }

  /** The volume that the call is about; a fenced call that can't be read must not slip past the
   * fence. */
  #keyOf(call: InboundCall): VolumeKey | undefined | 'unreadable' {
    if (!isSingleFlight(call.path)) return undefined;
    const plain = decompressMessage(
      call.body,
      getSingle(call.headers, 'grpc-encoding'),
      this.#options.maxMessageBytes,
    );
    if (plain === undefined) return 'unreadable';
    try {
      return readVolumeKey(call.path, plain);
    } catch {
      return 'unreadable';
    }
  }

  /** What is left of the caller's deadline, unless a time limit says that it is too late to send.
   */
  #limits(
    call: InboundCall,
    nowMs: number,
  ): { readonly timeoutMs: number | undefined } | { readonly refused: Reply } {
    const notAfter = getSingle(call.headers, NOT_AFTER_METADATA);
    if (notAfter !== undefined || call.headers.some(([name]) => name === NOT_AFTER_METADATA)) {
      if (notAfter === undefined || !/^\d{1,16}$/.test(notAfter)) {
        return {
          refused: this.refuse(
            'malformed',
            Code.InvalidArgument,
            `${NOT_AFTER_METADATA} must be one Unix time in milliseconds`,
          ),
        };
      }
      const lateMs = nowMs - Number(notAfter);
      if (lateMs > 0)
        return {
          refused: this.refuse(
            'not-after',
            Code.Aborted,
            `not forwarded: its ${NOT_AFTER_METADATA} passed ${lateMs} ms ago`,
          ),
        };
    }
    const timeout = getSingle(call.headers, 'grpc-timeout');
    if (timeout === undefined) return { timeoutMs: undefined };
    const budgetMs = parseTimeoutMs(timeout);
    if (budgetMs === undefined)
      return {
        refused: this.refuse(
          'malformed',
          Code.Internal,
          `grpc-timeout "${timeout.slice(0, 40)}" can't be read`,
        ),
      };
    const timeoutMs = call.receivedMs + budgetMs - nowMs;
    return timeoutMs > 0
      ? { timeoutMs }
      : { refused: this.refuse('deadline', Code.DeadlineExceeded, DEADLINE_DETAILS) };
  }

  /** Ties name and handle after a create, unties them after a delete. An answer that can't be read
   * teaches nothing. */
  #learn(path: string, key: VolumeKey, answer: DriverAnswer & { readonly kind: 'driver' }): void {
    const { inFlight, maxMessageBytes } = this.#options;
    if (path.endsWith('/DeleteVolume')) return inFlight.unlink(key.value);
    if (key.kind !== 'name') return;
    try {
      const plain = decompressMessage(
        answer.body,
        getSingle(answer.headers ?? [], 'grpc-encoding'),
        maxMessageBytes,
      );
      const handle = plain === undefined ? undefined : readCreatedHandle(plain);
      if (handle !== undefined) inFlight.link(key.value, handle);
    } catch {
      // The caller will find out for itself that it does not decode.
    }
  }

  #log(call: InboundCall, reply: Reply): void {
    const { clock, log, maxMessageBytes } = this.#options;
    const driverSaid = reply.kind === 'driver';
    const { code, details } = driverSaid ? reply.answer : reply;
    this.#options.logCall?.(log, {
      path: call.path,
      caller: call.caller,
      trace: getSingle(call.headers, 'traceparent'),
      request: decompressMessage(
        call.body,
        getSingle(call.headers, 'grpc-encoding'),
        maxMessageBytes,
      ),
      response: driverSaid
        ? decompressMessage(
            reply.answer.body,
            getSingle(reply.answer.headers ?? [], 'grpc-encoding'),
            maxMessageBytes,
          )
        : undefined,
      code,
      details,
      driverSaid,
      notForwarded: !driverSaid && reply.notForwarded,
      durationMs: clock.nowMs() - call.receivedMs,
    });
  }
}
