import { KubeError } from './kube-error.ts';
import { TokenBucket } from '../runtime/token-bucket.ts';

/** Refusals within this time after a reduction do not reduce the limit again. */
const REDUCTION_PAUSE_MS = 1000;
const REDUCTION_FACTOR = 0.7;
/** How much the limit rises per success, divided by the limit: a few per second under load. */
const GROWTH = 0.2;
const MIN_LIMIT = 2;

/** Client-side flow control: admits requests in the order of their arrival. Limits how many are
 * under way and, by a token bucket, how many are sent per second. The first limit is lowered when
 * the server answers 429 and slowly raised again by successes. */
export class FlowControl {
  readonly #max: number;
  readonly #nowMs: () => number;
  readonly #bucket: TokenBucket | undefined;
  readonly #waiting = new Set<() => void>();
  #limit: number;
  #inFlight = 0;
  #reducedAtMs = -Infinity;
  #timer: NodeJS.Timeout | undefined;

  /** @param o.maxInFlight  most requests under way at once
   * @param o.qps    requests per second on average; 0 or less: no limit
   * @param o.burst  requests that may be sent at once after a pause; only with qps
   * @param o.nowMs  a monotonic clock */
  constructor(o: {
    readonly maxInFlight: number;
    readonly qps: number;
    readonly burst: number;
    readonly nowMs: () => number;
  }) {
    const { qps, burst, nowMs } = o;
    this.#max = Math.max(1, o.maxInFlight);
    this.#limit = this.#max;
    this.#nowMs = nowMs;
    if (qps > 0)
      this.#bucket = new TokenBucket({
        burst: Math.max(1, burst),
        perSecond: qps,
        nowMs: nowMs(),
      });
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** The current limit of requests under way. */
  get limit(): number {
    return Math.floor(this.#limit);
  }

  /** Resolves when a request may be sent. `release` must be called at its end.
   * @throws KubeError with code 0 when the signal aborts or the time has passed */
  async acquire(o: {
    readonly title: string;
    readonly timeoutMs: number;
    readonly signal?: AbortSignal | undefined;
  }): Promise<void> {
    const { title: request, timeoutMs, signal } = o;
    if (signal?.aborted !== true && this.#waiting.size === 0 && this.#tryAdmit()) return;
    await new Promise<void>((resolve, reject) => {
      const leave = (): void => {
        this.#waiting.delete(admit);
        clearTimeout(timer);
        signal?.removeEventListener('abort', onAbort);
      };
      const admit = (): void => {
        leave();
        resolve();
      };
      const refuse = (reason: 'Aborted' | 'Timeout', serverMessage: string): void => {
        leave();
        const cause: unknown = signal?.reason;
        reject(
          new KubeError({ code: 0, reason, serverMessage, request, maybeSent: false }, { cause }),
        );
      };
      const onAbort = (): void => refuse('Aborted', 'aborted before it was sent');
      const waited = `waited ${Math.round(timeoutMs)} ms for its turn behind other requests`;
      const timer = setTimeout(() => refuse('Timeout', waited), timeoutMs);
      if (signal?.aborted === true) return onAbort();
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#waiting.add(admit);
      this.#admitWaiting();
    });
  }

  /** @param ending  refused: the server answered 429; lost: there was no answer, which says nothing
   *                about the server's load */
  release(ending: 'answered' | 'refused' | 'lost'): void {
    this.#inFlight--;
    if (ending === 'refused') this.#reduce();
    else if (ending === 'answered')
      this.#limit = Math.min(this.#max, this.#limit + GROWTH / this.#limit);
    this.#admitWaiting();
  }

  #reduce(): void {
    const nowMs = this.#nowMs();
    if (nowMs - this.#reducedAtMs < REDUCTION_PAUSE_MS) return;
    this.#reducedAtMs = nowMs;
    this.#limit = Math.max(Math.min(MIN_LIMIT, this.#max), this.#limit * REDUCTION_FACTOR);
  }

  #tryAdmit(): boolean {
    if (this.#inFlight >= this.limit || this.#bucket?.take(this.#nowMs()) === false) return false;
    this.#inFlight++;
    return true;
  }

  #admitWaiting(): void {
    for (const admit of this.#waiting) {
      if (!this.#tryAdmit()) break;
      admit();
    }
    // `release` admits a request that waits for others to end; a timer, one that waits for a token.
    if (
      this.#bucket === undefined ||
      this.#timer !== undefined ||
      this.#waiting.size === 0 ||
      this.#inFlight >= this.limit
    )
      return;
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        this.#admitWaiting();
      },
      Math.max(1, this.#bucket.waitMs(this.#nowMs())),
    );
  }
}
