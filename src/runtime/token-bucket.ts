/** A rate limit: `burst` at once, then `perSecond`. The time is an argument. */
export class TokenBucket {
  readonly #burst: number;
  readonly #perSecond: number;
  #tokens: number;
  #filledAtMs: number;

  constructor(o: { readonly burst: number; readonly perSecond: number; readonly nowMs: number }) {
    this.#burst = o.burst;
    this.#perSecond = o.perSecond;
    this.#tokens = o.burst;
    this.#filledAtMs = o.nowMs;
  }

  /** Time until there is a token; 0 if there is one now. */
  waitMs(nowMs: number): number {
    this.#fill(nowMs);
    return this.#tokens >= 1 ? 0 : Math.ceil(((1 - this.#tokens) * 1000) / this.#perSecond);
  }

  /** Takes a token. If there is none, the next tokens pay the debt. */
  take(nowMs: number): void {
    this.#fill(nowMs);
    this.#tokens -= 1;
  }

  #fill(nowMs: number): void {
    // The clock may have been set back.
    const elapsedMs = Math.max(0, nowMs - this.#filledAtMs);
    this.#tokens = Math.min(this.#burst, this.#tokens + (elapsedMs * this.#perSecond) / 1000);
    this.#filledAtMs = nowMs;
  }
}
