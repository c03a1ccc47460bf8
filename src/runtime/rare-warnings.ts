import type { Clock } from './clock.ts';
import type { Logger } from './log.ts';

const INTERVAL_MS = 10_000;

/** Warns of what others cause, each message at most every 10 s and otherwise at debug level, so
 * that nobody can flood the log. */
export class RareWarnings {
  readonly #log: Logger;
  readonly #clock: Clock;
  /** By message. */
  readonly #warnedMs = new Map<string, number>();

  constructor(log: Logger, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** @param message  one of a few constant texts */
  warn(fields: object, message: string): void {
    const nowMs = this.#clock.nowMs();
    if (nowMs - (this.#warnedMs.get(message) ?? -Infinity) < INTERVAL_MS)
      return this.#log.debug(fields, message);
    this.#warnedMs.set(message, nowMs);
    this.#log.warn(fields, message);
  }
}
