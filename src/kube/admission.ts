import { KubeError } from './kube-error.ts';
import { TokenBucket } from './token-bucket.ts';

export interface AdmissionOptions {
  /** Requests under way at once, at most. */
  readonly maxInFlight: number;
  /** Requests per second in the long run; 0 or less: no limit. */
  readonly qps: number;
  /** Requests that may go at once after a pause; only with qps. */
  readonly burst: number;
  /** Milliseconds of any clock that never goes back. */
  readonly nowMs: () => number;
}

/** The limit isn't lowered twice for one and the same crowd of refusals. */
const SHRINK_PAUSE_MS = 1000;
const SHRINK_FACTOR = 0.7;
/** Share of a place won back per success and place: a few places per second under load. */
const GROWTH = 0.2;
const LEAST = 2;

/** Lets requests pass, first come, first served: a cap on what is under way, lowered when the
 * server refuses and slowly raised again, and a token bucket. */
export class Admission {
  readonly #max: number;
  readonly #nowMs: () => number;
  readonly #bucket: TokenBucket | undefined;
  readonly #waiting = new Set<() => void>();
  #limit: number;
  #inFlight = 0;
  #shrunkAtMs = -Infinity;
  #timer: NodeJS.Timeout | undefined;

  constructor({ maxInFlight, qps, burst, nowMs }: AdmissionOptions) {
    this.#max = Math.max(1, maxInFlight);
    this.#limit = this.#max;
    this.#nowMs = nowMs;
    this.#bucket =
      qps > 0
        ? new TokenBucket({ burst: Math.max(1, burst), perSecond: qps, nowMs: nowMs() })
        : undefined;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** The cap as it stands, after refusals. */
  get limit(): number {
    return Math.floor(this.#limit);
  }

  /** Resolves when one request may go; each must be followed by `release`.
   * @throws KubeError (code 0, not sent) when the signal aborts or the time is over */
  acquire(o: {
    readonly title: string;
    readonly timeoutMs: number;
    readonly signal?: AbortSignal | undefined;
  }): Promise<void> {
    const { signal } = o;
    const refusal = (reason: 'Aborted' | 'Timeout', serverMessage: string): KubeError =>
      new KubeError(
        { code: 0, reason, serverMessage, request: o.title, maybeSent: false },
        { cause: signal?.reason },
      );
    if (signal?.aborted === true)
      return Promise.reject(refusal('Aborted', 'aborted before it was sent'));
    if (this.#waiting.size === 0 && this.#takePlace()) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const leave = (settle: () => void): void => {
        this.#waiting.delete(go);
        clearTimeout(timer);
        signal?.removeEventListener('abort', onAbort);
        settle();
      };
      const go = (): void => leave(resolve);
      const onAbort = (): void =>
        leave(() => reject(refusal('Aborted', 'aborted before it was sent')));
      const timer = setTimeout(
        () =>
          leave(() =>
            reject(
              refusal(
                'Timeout',
                `waited ${Math.round(o.timeoutMs)} ms for its turn behind other requests`,
              ),
            ),
          ),
        o.timeoutMs,
      );
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#waiting.add(go);
      this.#pump();
    });
  }

  /** @param ending  refused: the server answered 429; lost: no answer, which says nothing about its
   *                load */
  release(ending: 'answered' | 'refused' | 'lost'): void {
    this.#inFlight--;
    if (ending === 'refused') this.#shrink();
    else if (ending === 'answered')
      this.#limit = Math.min(this.#max, this.#limit + GROWTH / this.#limit);
    this.#pump();
  }

  #shrink(): void {
    const nowMs = this.#nowMs();
    if (nowMs - this.#shrunkAtMs < SHRINK_PAUSE_MS) return;
    this.#shrunkAtMs = nowMs;
    this.#limit = Math.max(Math.min(LEAST, this.#max), this.#limit * SHRINK_FACTOR);
  }

  #takePlace(): boolean {
    if (this.#inFlight >= this.limit || this.#bucket?.take(this.#nowMs()) === false) return false;
    this.#inFlight++;
    return true;
  }

  #pump(): void {
    for (const go of this.#waiting) {
      if (!this.#takePlace()) break;
      go();
    }
    // Without a free place the next release pumps; without a token, time does.
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
        this.#pump();
      },
      Math.max(1, this.#bucket.waitMs(this.#nowMs())),
    );
  }
}
