import { constants, type ClientHttp2Stream } from 'node:http2';

/** Below what HTTP/2 servers take for an attack with resets (nghttp2: 1,000 at once, 33 a second):
 * they end the whole connection then, and with it the calls of everybody else. */
const BURST = 200;
const PER_SECOND = 20;
const TICK_MS = 50;

/** Tells a driver by RST_STREAM that calls were given up, at a pace that it bears. Those that have
 * to wait mostly end by themselves. */
export class ResetLimiter {
  readonly #waiting = new Set<ClientHttp2Stream>();
  #tokens = BURST;
  #timer: NodeJS.Timeout | undefined;

  /** Resets the stream now, or as soon as it may. */
  reset(stream: ClientHttp2Stream): void {
    if (stream.destroyed || stream.closed) return;
    if (this.#tokens >= 1) {
      this.#tokens -= 1;
      stream.close(constants.NGHTTP2_CANCEL);
    } else {
      this.#waiting.add(stream);
      stream.once('close', () => this.#waiting.delete(stream));
    }
    this.#timer ??= setInterval(() => this.#refill(), TICK_MS);
    this.#timer.unref();
  }

  #refill(): void {
    this.#tokens = Math.min(BURST, this.#tokens + (PER_SECOND * TICK_MS) / 1_000);
    for (const stream of this.#waiting) {
      if (this.#tokens < 1) return;
      this.#tokens -= 1;
      stream.close(constants.NGHTTP2_CANCEL);
    }
    if (this.#tokens < BURST || this.#waiting.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
