import { type ClientHttp2Stream, constants } from 'node:http2';

// A token bucket below the limit at which HTTP/2 servers assume a reset attack (nghttp2: a burst of
// 1,000, then 33 a second). They would end the whole connection, with the calls of all callers.
const BURST = 200;
const PER_SECOND = 20;
const REFILL_INTERVAL_MS = 50;

/** Limits the rate of RST_STREAM frames that tell the driver about cancelled calls. Most calls end
 * by themselves while their reset waits for a token. */
export class ResetLimiter {
  readonly #pending = new Set<ClientHttp2Stream>();
  #tokens = BURST;
  #timer: NodeJS.Timeout | undefined;

  /** Resets a stream now, or as soon as there is a token. */
  reset(stream: ClientHttp2Stream): void {
    if (stream.destroyed || stream.closed) return;
    if (this.#tokens >= 1) {
      this.#spendToken(stream);
    } else {
      this.#pending.add(stream);
      stream.once('close', () => this.#pending.delete(stream));
    }
    this.#timer ??= setInterval(() => this.#refill(), REFILL_INTERVAL_MS);
    this.#timer.unref();
  }

  #spendToken(stream: ClientHttp2Stream): void {
    this.#tokens -= 1;
    stream.close(constants.NGHTTP2_CANCEL);
  }

  #refill(): void {
    this.#tokens = Math.min(BURST, this.#tokens + (PER_SECOND * REFILL_INTERVAL_MS) / 1_000);
    for (const stream of this.#pending) {
      if (this.#tokens < 1) return;
      this.#spendToken(stream);
    }
    if (this.#tokens < BURST || this.#pending.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
