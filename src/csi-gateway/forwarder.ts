import {
  Code,
  DEADLINE_DETAILS,
  FAILOVER_METADATA,
  FULL_DETAILS,
  MIGRATED_METADATA,
  NOT_AFTER_METADATA,
  POD_METADATA,
  tooLateDetails,
} from '../csi/status.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { traceIdIn } from '../runtime/trace-id.ts';
import type { CallLimiter, CallSlot, LimitReached } from './call-limiter.ts';
import type { UnaryAnswer, UnaryResponse } from '../csi/unary-call.ts';
import type { DriverConnection } from '../driver/driver-connection.ts';
import {
  formatTimeout,
  frameMessage,
  getSingle,
  type HeaderPairs,
  stripHopHeaders,
} from '../csi/grpc-wire.ts';
import type { CallRecord } from './log-call.ts';
import type { GatewayMetrics, RefusalReason } from '../driver/metrics.ts';
import { readCreatedHandle, readVolumeKey } from '../driver/messages.ts';
import type { SingleFlight, VolumeKey } from '../driver/single-flight.ts';

/** A call as a caller sent it. */
export interface InboundCall {
  readonly path: string;
  readonly headers: HeaderPairs;
  readonly message: Buffer;
  /** When it arrived. */
  readonly receivedMs: number;
  /** Unix milliseconds; Infinity without a deadline. */
  readonly deadlineMs: number;
  readonly caller: string;
  /** Aborts when the caller has cancelled the call or is gone. */
  readonly signal: AbortSignal;
}

/** A status that the gateway made. */
export interface GatewayReply {
  readonly kind: 'gateway';
  readonly code: number;
  readonly details: string;
  /** Whether nothing was sent to the driver; otherwise the status is ambiguous. */
  readonly notForwarded?: boolean;
  /** Number of volumes with calls under way; only while draining. */
  readonly draining?: number;
  /** Whether the driver can be reached, and only this gateway has no room for the call now. */
  readonly isFull?: boolean;
}

/** What the caller gets: the driver's response or a status of the gateway. */
export type Reply = { readonly kind: 'driver'; readonly answer: UnaryResponse } | GatewayReply;

export interface ForwarderOptions {
  readonly driver: DriverConnection;
  /** Method paths that may pass; undefined for all of CSI. */
  readonly allowed: ReadonlySet<string> | undefined;
  readonly flights: SingleFlight;
  /** UID of the pod that this gateway is in; '' if it does not know. */
  readonly pod: string;
  readonly limiter: CallLimiter;
  readonly clock: Clock;
  readonly log: Logger;
  /** Logs each call with its messages (-v=5); undefined for no such log. */
  readonly logCall: ((log: Logger, call: CallRecord) => void) | undefined;
  readonly metrics: GatewayMetrics;
}

/** The leading ingest probes each gateway twice a second (src/ingest/gateway-failover.ts). */
const FAILOVER_PROBE_MS = 2_000;
/** Part of a call's deadline for which it may wait for a slot; the rest is the driver's. */
const WAIT_SHARE = 0.1;
/** How long a call without a deadline waits for a slot. */
const WAIT_WITHOUT_DEADLINE_MS = 10_000;

/** Decides for each call whether it goes to the driver, and returns the driver's response. A reply
 * is `notForwarded` only if no stream to the driver was opened for the call. */
export class Forwarder {
  readonly #options: ForwarderOptions;
  #isDraining = false;
  #failoverProbeMs = -Infinity;
  readonly #drainReported = new AbortController();

  constructor(options: ForwarderOptions) {
    this.#options = options;
  }

  /** Refuses all further calls and those that wait for a slot, not forwarded. */
  drain(): void {
    this.#isDraining = true;
    this.#options.limiter.endWaits();
  }

  /** Whether an ingest probes this gateway to decide about failover. */
  get isProbedForFailover(): boolean {
    return this.#options.clock.nowMs() - this.#failoverProbeMs < FAILOVER_PROBE_MS;
  }

  /** Aborts when the answer to such a probe has reported that no call is under way any more. */
  get drainReported(): AbortSignal {
    return this.#drainReported.signal;
  }

  /** Forwards one call or refuses it. Never rejects. */
  async forward(call: InboundCall): Promise<Reply> {
    const reply = await this.#decide(call);
    if (this.#options.logCall !== undefined) this.#log(call, reply);
    return reply;
  }

  /** Makes the status of a call that is not forwarded, and counts it in the metrics. */
  #refuse(reason: RefusalReason, code: number, details: string): GatewayReply {
    this.#options.metrics.countRefusal(reason);
    return { kind: 'gateway', code, details, notForwarded: true };
  }

  /** Makes the status of a call for which this gateway has no room now. Not ResourceExhausted: a
   * caller without knowledge of the trailers would take that for the driver's word that the storage
   * is full and no volume exists. */
  #refuseFull(details: string): GatewayReply {
    const text = `${FULL_DETAILS}: ${details}`;
    return { ...this.#refuse('max-in-flight', Code.Unavailable, text), isFull: true };
  }

  async #decide(call: InboundCall): Promise<Reply> {
    const { flights, limiter } = this.#options;
    const { path } = call;
    const checked = this.#check(call);
    if ('kind' in checked) return checked;
    const { key, timeoutMs } = checked;
    const flight = key === undefined ? undefined : flights.acquire(key, path);
    if (flight?.ok === false) {
      const details = `${flight.running} of the same volume is under way`;
      return this.#refuse('in-flight', Code.Aborted, details);
    }
    const slot = limiter.acquire(path);
    const answer = await ('limit' in slot
      ? this.#sendAfterWait(call, slot, timeoutMs)
      : this.#send(call, slot, timeoutMs));
    if (key !== undefined) this.#updateLinks(path, key, answer);
    flight?.release();
    if (answer.kind === 'answered') return { kind: 'driver', answer };
    if (answer.kind === 'gateway') return answer;
    if (answer.kind === 'not-sent') return this.#refuse('driver-down', answer.code, answer.details);
    return { kind: 'gateway', code: answer.code, details: answer.details };
  }

  /** Waits for a slot, and sends the call or refuses it.
   * @param reached    the limit that left none
   * @param timeoutMs  time that is left for the call; undefined without a deadline */
  async #sendAfterWait(
    call: InboundCall,
    { limit }: LimitReached,
    timeoutMs: number | undefined,
  ): Promise<UnaryAnswer | GatewayReply> {
    const { path, signal } = call;
    const waitMs = this.#longestWaitMs(call, timeoutMs);
    const slot = await this.#options.limiter.waitForSlot(path, waitMs, signal);
    // What was checked before the wait may have changed.
    const refusal = this.#checkAvailability(call);
    if (slot === undefined) {
      const many = `${limit} calls of ${path.slice(0, 200)} are under way`;
      return refusal ?? this.#refuseFull(`${many}, as many as --max-in-flight allows`);
    }
    const leftMs = refusal ?? this.#readTimeoutMs(call);
    if (typeof leftMs !== 'object') return this.#send(call, slot, leftMs);
    slot.release();
    return leftMs;
  }

  #longestWaitMs({ headers }: InboundCall, timeoutMs: number | undefined): number {
    const notAfter = getSingle(headers, NOT_AFTER_METADATA);
    const waitMs = timeoutMs === undefined ? WAIT_WITHOUT_DEADLINE_MS : timeoutMs * WAIT_SHARE;
    const leftMs = Number(notAfter ?? Infinity) - this.#options.clock.nowMs();
    return Math.max(0, Math.min(waitMs, leftMs));
  }

  /** Makes all checks that need no slot.
   * @returns the volume of the call (only for single-flight methods) and the time that is left for
   *   it, or the first refusal */
  #check(
    call: InboundCall,
  ): GatewayReply | { key: VolumeKey | undefined; timeoutMs: number | undefined } {
    const refusal = this.#checkPod(call) ?? this.#checkAvailability(call);
    if (refusal !== undefined) return refusal;
    const key = this.#readKey(call);
    if (key === 'unreadable') {
      const details = `the request of ${call.path} can't be read`;
      return this.#refuse('malformed', Code.InvalidArgument, details);
    }
    const timeoutMs = this.#readTimeoutMs(call);
    return typeof timeoutMs === 'object' ? timeoutMs : { key, timeoutMs };
  }

  /** Refuses methods that may not pass, and all calls while the gateway drains or the driver can't
   * be used. */
  #checkAvailability({ path, headers }: InboundCall): GatewayReply | undefined {
    const { allowed, clock, driver, flights } = this.#options;
    if (allowed !== undefined && !allowed.has(path)) {
      const details = `${path.slice(0, 200)} does not pass this gateway`;
      const remedy = '(its --allow-all lets every method of CSI pass)';
      return this.#refuse('method', Code.Unimplemented, `${details} ${remedy}`);
    }
    const isFailoverProbe = headers.some(([name]) => name === FAILOVER_METADATA);
    if (isFailoverProbe) this.#failoverProbeMs = clock.nowMs();
    if (this.#isDraining) {
      if (isFailoverProbe && flights.size === 0) this.#drainReported.abort();
      const refusal = this.#refuse('draining', Code.Unavailable, 'the gateway is shutting down');
      return { ...refusal, draining: flights.size };
    }
    const trouble = driver.findTrouble(path);
    if (trouble === undefined) return undefined;
    return this.#refuse('driver-down', Code.Unavailable, trouble);
  }

  /** The volume of a single-flight call; undefined for other methods. A request that can't be read
   * must be refused, or it would bypass the limit of one call per volume. */
  #readKey({ path, message }: InboundCall): VolumeKey | undefined | 'unreadable' {
    try {
      return readVolumeKey(path, message);
    } catch {
      return 'unreadable';
    }
  }

  /** The time that is left for a call, undefined without a deadline, or a refusal if it is too late
   * to send it. */
  #readTimeoutMs(call: InboundCall): number | undefined | GatewayReply {
    const nowMs = this.#options.clock.nowMs();
    const refusal = this.#checkNotAfter(call.headers, nowMs);
    if (refusal !== undefined) return refusal;
    if (call.deadlineMs === Infinity) return undefined;
    const timeoutMs = call.deadlineMs - nowMs;
    if (timeoutMs > 0) return timeoutMs;
    return this.#refuse('deadline', Code.DeadlineExceeded, DEADLINE_DETAILS);
  }

  /** An IP address may be another gateway's by the time it is dialled. A driver there would say of
   * a deletion that it succeeded, since it has no such volume. */
  #checkPod({ headers }: InboundCall): GatewayReply | undefined {
    const { pod } = this.#options;
    const meant = getSingle(headers, POD_METADATA);
    if (pod === '' || meant === undefined || meant === pod) return undefined;
    const details = `not forwarded: it is for pod ${meant.slice(0, 253)}, and this is ${pod}`;
    return this.#refuse('other-pod', Code.Unavailable, details);
  }

  /** docs/leak-proof.md, M2: a call with sutler-not-after is not forwarded after that time. */
  #checkNotAfter(headers: HeaderPairs, nowMs: number): GatewayReply | undefined {
    if (!headers.some(([name]) => name === NOT_AFTER_METADATA)) return undefined;
    const text = getSingle(headers, NOT_AFTER_METADATA);
    if (text === undefined || !/^\d{1,16}$/.test(text)) {
      const details = `${NOT_AFTER_METADATA} must be one Unix time in milliseconds`;
      return this.#refuse('malformed', Code.InvalidArgument, details);
    }
    const lateMs = nowMs - Number(text);
    if (lateMs <= 0) return undefined;
    return this.#refuse('not-after', Code.Aborted, tooLateDetails(lateMs));
  }

  #send(call: InboundCall, slot: CallSlot, timeoutMs: number | undefined): Promise<UnaryAnswer> {
    const headers = { ...stripHopHeaders(call.headers), 'content-type': 'application/grpc' };
    return this.#options.driver.send({
      path: call.path,
      headers:
        timeoutMs === undefined
          ? headers
          : { ...headers, 'grpc-timeout': formatTimeout(timeoutMs) },
      body: frameMessage(call.message),
      migrated: getSingle(call.headers, MIGRATED_METADATA) === 'true',
      signal: call.signal,
      timeoutMs,
      onEnd: () => slot.release(),
    });
  }

  /** Links name and handle after a successful create, and unlinks them after a delete. */
  #updateLinks(path: string, key: VolumeKey, answer: UnaryAnswer | GatewayReply): void {
    const { flights } = this.#options;
    if (answer.kind !== 'answered' || answer.code !== Code.OK) return;
    if (path.endsWith('/DeleteVolume')) return flights.unlink(key.value);
    if (key.kind !== 'name') return;
    try {
      const handle = readCreatedHandle(answer.body.subarray(5));
      if (handle !== undefined) flights.link(key.value, handle);
    } catch {
      // The response can't be decoded. It is forwarded as it is, and the caller will report that.
    }
  }

  #log(call: InboundCall, reply: Reply): void {
    const { clock, log } = this.#options;
    const driverSaid = reply.kind === 'driver';
    const { code, details } = driverSaid ? reply.answer : reply;
    this.#options.logCall?.(log, {
      path: call.path,
      caller: call.caller,
      trace: traceIdIn(getSingle(call.headers, 'traceparent')),
      request: call.message,
      response: driverSaid ? reply.answer.body.subarray(5) : undefined,
      code,
      details,
      driverSaid,
      notForwarded: !driverSaid && reply.notForwarded === true,
      durationMs: clock.nowMs() - call.receivedMs,
    });
  }
}
