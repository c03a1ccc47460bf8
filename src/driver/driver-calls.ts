import type { OutgoingHttpHeaders } from 'node:http2';
import {
  decompressMessage,
  formatTimeout,
  frameMessage,
  getSingle,
  type HeaderPairs,
} from '../csi/grpc-wire.ts';
import { Code, DEADLINE_DETAILS, FULL_DETAILS, tooLateDetails } from '../csi/status.ts';
import type { UnaryAnswer } from '../csi/unary-call.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { DriverConnection } from './driver-connection.ts';
import { logCall } from './log-call.ts';
import type { DriverMetrics, RefusalReason } from './metrics.ts';
import { SingleFlight, type VolumeKey } from './single-flight.ts';
import { readCreatedHandle, readVolumeKey } from './volume-keys.ts';

/** A call for the driver. */
export interface DriverCall {
  /** "/csi.v1.Controller/CreateVolume". */
  readonly path: string;
  /** The encoded request. */
  readonly message: Uint8Array;
  /** Metadata for the driver. */
  readonly headers: OutgoingHttpHeaders;
  /** Unix ms; Infinity without a deadline. */
  readonly deadlineMs: number;
  /** Unix ms after which it must not be sent (docs/leak-proof.md, M2); Infinity without a limit. */
  readonly notAfterMs: number;
  /** For metrics: whether the volume comes from an in-tree plug-in. */
  readonly migrated: boolean;
  /** For the log. */
  readonly caller: string;
  /** Cancels the call. */
  readonly signal: AbortSignal;
}

/** The driver's own status, with the message of a success. */
export interface DriverReply {
  readonly kind: 'driver';
  readonly code: number;
  readonly details: string;
  readonly message: Buffer;
  readonly headers: HeaderPairs;
  readonly trailers: HeaderPairs;
}

/** Not a byte of the call was sent to the driver. */
export interface Refusal {
  readonly kind: 'not-forwarded';
  readonly reason: RefusalReason;
  readonly code: number;
  readonly details: string;
}

/** How a call ended. ambiguous: the driver may or may not have acted. */
export type Reply =
  | DriverReply
  | Refusal
  | { readonly kind: 'ambiguous'; readonly code: number; readonly details: string };

export interface DriverCallsOptions {
  readonly driver: DriverConnection;
  /** Calls at the driver at once; Identity calls are not counted. */
  readonly maxInFlight: number;
  /** Largest response, decompressed. */
  readonly maxMessageBytes: number;
  /** Whether each call is logged with its messages, without secrets. */
  readonly logsMessages: boolean;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: DriverMetrics;
}

const IDENTITY = '/csi.v1.Identity/';

/** Calls the driver, one call per volume at a time, and says of each who made its status. */
export class DriverCalls {
  readonly #options: DriverCallsOptions;
  readonly #flights = new SingleFlight();
  /** Calls that the driver works on, but for Identity's. */
  #running = 0;

  constructor(options: DriverCallsOptions) {
    this.#options = options;
  }

  /** Number of volumes with calls under way. */
  get busyVolumes(): number {
    return this.#flights.size;
  }

  /** Sends a call, or refuses it. Never rejects. */
  async send(call: DriverCall): Promise<Reply> {
    const { clock } = this.#options;
    const { path } = call;
    const startedMs = clock.nowMs();
    const refusal = this.#check(call, startedMs);
    if (refusal !== undefined) return refusal;
    const key = readKey(call);
    if (key === 'unreadable') {
      const details = `the request of ${path} can't be read`;
      return this.refuse(call, 'malformed', Code.InvalidArgument, details);
    }
    const flight = key === undefined ? undefined : this.#flights.acquire(key, path);
    if (flight?.ok === false) {
      const details = `${flight.running} of the same volume is under way`;
      return this.refuse(call, 'in-flight', Code.Aborted, details);
    }
    const answer = await this.#sendNow(call, startedMs);
    if (answer.kind === 'not-sent') {
      flight?.release();
      return this.refuse(call, 'driver-down', answer.code, answer.details);
    }
    const reply = this.#read(answer);
    if (key !== undefined) this.#updateLinks(path, key, reply);
    flight?.release();
    this.#log(call, reply, clock.nowMs() - startedMs);
    return reply;
  }

  /** The reply to a call that is not sent, counted and logged. */
  refuse(call: DriverCall, reason: RefusalReason, code: number, details: string): Refusal {
    this.#options.metrics.countRefusal(reason);
    const refusal: Refusal = { kind: 'not-forwarded', reason, code, details };
    this.#log(call, refusal, 0);
    return refusal;
  }

  /** Refuses a call that comes too late, or that the driver can't take now. */
  #check(call: DriverCall, nowMs: number): Refusal | undefined {
    const { driver, maxInFlight } = this.#options;
    const { path } = call;
    const trouble = driver.findTrouble(path);
    if (trouble !== undefined) return this.refuse(call, 'driver-down', Code.Unavailable, trouble);
    const lateMs = nowMs - call.notAfterMs;
    if (lateMs > 0) return this.refuse(call, 'not-after', Code.Aborted, tooLateDetails(lateMs));
    if (nowMs >= call.deadlineMs)
      return this.refuse(call, 'deadline', Code.DeadlineExceeded, DEADLINE_DETAILS);
    if (this.#running < maxInFlight || path.startsWith(IDENTITY)) return undefined;
    // Not ResourceExhausted: a caller without knowledge of the trailers would take that for the
    // driver's word that the storage is full and no volume exists.
    const details = `${FULL_DETAILS}: ${maxInFlight} calls are under way (--max-in-flight)`;
    return this.refuse(call, 'max-in-flight', Code.Unavailable, details);
  }

  #sendNow(call: DriverCall, nowMs: number): Promise<UnaryAnswer> {
    const { path, message, migrated, signal } = call;
    const timeoutMs = call.deadlineMs === Infinity ? undefined : call.deadlineMs - nowMs;
    const timeout = timeoutMs === undefined ? {} : { 'grpc-timeout': formatTimeout(timeoutMs) };
    const counted = path.startsWith(IDENTITY) ? 0 : 1;
    this.#running += counted;
    return this.#options.driver.send({
      path,
      headers: { ...call.headers, 'content-type': 'application/grpc', ...timeout },
      body: frameMessage(message),
      migrated,
      signal,
      timeoutMs,
      onEnd: () => (this.#running -= counted),
    });
  }

  #read(answer: UnaryAnswer): Reply {
    const { code, details } = answer;
    if (answer.kind !== 'answered') return { kind: 'ambiguous', code, details };
    const { body, headers = [], trailers } = answer;
    const encoding = getSingle(headers, 'grpc-encoding');
    const message =
      code === Code.OK
        ? decompressMessage(body, encoding, this.#options.maxMessageBytes)
        : Buffer.alloc(0);
    if (message !== undefined) return { kind: 'driver', code, details, message, headers, trailers };
    // The driver has acted, and its answer is lost.
    const why = "the driver's answer can’t be decompressed";
    return { kind: 'ambiguous', code: Code.Internal, details: why };
  }

  #log(call: DriverCall, reply: Reply, durationMs: number): void {
    const { log, logsMessages } = this.#options;
    if (logsMessages) logCall(log, call, reply, durationMs);
  }

  /** Links name and handle after a successful create, and unlinks them after a delete. */
  #updateLinks(path: string, key: VolumeKey, reply: Reply): void {
    if (reply.kind !== 'driver' || reply.code !== Code.OK) return;
    if (path.endsWith('/DeleteVolume')) return this.#flights.unlink(key.value);
    if (key.kind !== 'name') return;
    try {
      const handle = readCreatedHandle(reply.message);
      if (handle !== undefined) this.#flights.link(key.value, handle);
    } catch {
      // The response can't be decoded. It is passed on as it is, and the caller will report that.
    }
  }
}

/** The volume of a single-flight call; undefined for other methods. A request that can't be read
 * must be refused, or it would bypass the limit of one call per volume. */
function readKey({ path, message }: DriverCall): VolumeKey | undefined | 'unreadable' {
  try {
    return readVolumeKey(path, message);
  } catch {
    return 'unreadable';
  }
}
