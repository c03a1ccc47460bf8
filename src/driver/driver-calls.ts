import type { OutgoingHttpHeaders } from 'node:http2';
import { Code, DEADLINE_DETAILS, FULL_DETAILS, tooLateDetails } from '../csi/status.ts';
import type { UnaryAnswer, UnaryResponse } from '../csi/unary-call.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { DriverConnection } from './driver-connection.ts';
import { logCall } from './log-call.ts';
import type { DriverMetrics, RefusalReason } from './metrics.ts';
import { readVolumeKey } from './volume-keys.ts';

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
  /** Unix ms after which it must not be sent (docs/leak-proof.md, M2); Infinity if there is no
   * limit. */
  readonly notAfterMs: number;
  /** For metrics: whether the volume comes from an in-tree plug-in. */
  readonly migrated: boolean;
  /** For the log. */
  readonly caller: string;
  /** Cancels the call. */
  readonly signal: AbortSignal | undefined;
}

/** The driver's own status, with the message of a success. */
export interface DriverReply extends Omit<UnaryResponse, 'kind'> {
  readonly kind: 'driver';
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
  /** Most calls at the driver at once, not counting Identity calls. */
  readonly maxInFlight: number;
  /** Whether each call is logged with its messages, without secrets. */
  readonly logsMessages: boolean;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: DriverMetrics;
}

const IDENTITY = '/csi.v1.Identity/';

/** Calls the driver, one call per volume at a time. For each status, says who made it. */
export class DriverCalls {
  readonly #options: DriverCallsOptions;
  /** The method of the call under way, by volume (invariant 7). */
  readonly #busy = new Map<string, string>();
  /** Calls that the driver works on, not counting Identity calls. */
  #running = 0;
  /** The latest deadline, in Unix ms, of calls that change a volume and were cancelled before the
   * driver answered. Until then the driver may be at work on them. */
  #cancelledUntilMs = -Infinity;

  constructor(options: DriverCallsOptions) {
    this.#options = options;
  }

  /** Number of volumes that the driver may be at work on: one for each call under way, and one for
   * all cancelled calls until their deadlines. */
  get busyVolumes(): number {
    const mayBeAtWork = this.#options.clock.nowMs() < this.#cancelledUntilMs;
    return this.#busy.size + Number(mayBeAtWork);
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
    const running = key === undefined ? undefined : this.#busy.get(key);
    if (running !== undefined) {
      const details = `${running} of the same volume is under way`;
      return this.refuse(call, 'in-flight', Code.Aborted, details);
    }
    if (key !== undefined) this.#busy.set(key, path);
    const answer = this.#judge(await this.#sendNow(call, startedMs), call);
    if (key !== undefined) {
      this.#busy.delete(key);
      if (answer.kind === 'ambiguous' && call.signal?.aborted === true)
        this.#cancelledUntilMs = Math.max(this.#cancelledUntilMs, call.deadlineMs);
    }
    const { code, details } = answer;
    if (answer.kind === 'not-sent') return this.refuse(call, 'driver-down', code, details);
    const reply: Reply =
      answer.kind === 'answered'
        ? { ...answer, kind: 'driver' }
        : { kind: 'ambiguous', code, details };
    this.#log(call, reply, clock.nowMs() - startedMs);
    return reply;
  }

  /** Makes the reply to a call that is not sent; counts and logs it. */
  refuse(call: DriverCall, reason: RefusalReason, code: number, details: string): Refusal {
    this.#options.metrics.countRefusal(reason);
    const refusal: Refusal = { kind: 'not-forwarded', reason, code, details };
    this.#log(call, refusal, 0);
    return refusal;
  }

  /** Refuses a call that is too late, or that the driver can't take now. */
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
    // Not ResourceExhausted: a caller that does not read the trailers would think that the driver
    // is full and has created no volume.
    const details = `${FULL_DETAILS}: ${maxInFlight} calls are under way (--max-in-flight)`;
    return this.refuse(call, 'max-in-flight', Code.Unavailable, details);
  }

  async #sendNow(call: DriverCall, nowMs: number): Promise<UnaryAnswer> {
    const { path, headers, message, migrated, signal, deadlineMs } = call;
    const timeoutMs = deadlineMs === Infinity ? undefined : deadlineMs - nowMs;
    const counted = path.startsWith(IDENTITY) ? 0 : 1;
    this.#running += counted;
    const request = { path, headers, message, signal, timeoutMs };
    const answer = await this.#options.driver.send(request, migrated);
    this.#running -= counted;
    return answer;
  }

  /** Many drivers end a call at its deadline themselves, and a busy process reads that before its
   * own timer fires. The answer is then as after the timer, since callers compare texts. */
  #judge(answer: UnaryAnswer, { deadlineMs }: DriverCall): UnaryAnswer {
    const { kind, code } = answer;
    const isOver = code === Code.DeadlineExceeded && this.#options.clock.nowMs() >= deadlineMs;
    return kind === 'answered' && isOver
      ? { kind: 'ambiguous', code, details: DEADLINE_DETAILS }
      : answer;
  }

  #log(call: DriverCall, reply: Reply, durationMs: number): void {
    const { log, logsMessages } = this.#options;
    if (logsMessages) logCall(log, call, reply, durationMs);
  }
}

/** Reads the volume that a call changes; undefined for other methods. A request that can't be read
 * must be refused, or it would bypass the limit of one call per volume. */
function readKey({ path, message }: DriverCall): string | undefined {
  try {
    return readVolumeKey(path, message);
  } catch {
    return 'unreadable';
  }
}
