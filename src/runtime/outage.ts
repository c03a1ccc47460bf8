import type { Logger } from './log.ts';

/** Shorter outages end by themselves and need no warning. */
export const BLIP_MS = 1_000;

/** Warns of an outage when it has lasted for a second, and of each further reason; logs its end and
 * its length. Logs a shorter outage at debug level. */
export class Outage {
  readonly #log: Logger;
  readonly #afterMs: number;
  /** Start of the outage, Unix ms. */
  #sinceMs: number | undefined;
  /** The reasons of this outage, without their numbers. */
  readonly #reasons = new Set<string>();
  #isTold = false;
  #warn: () => void = () => undefined;
  #timer: NodeJS.Timeout | undefined;

  /** @param afterMs  length after which it warns of an outage */
  constructor(log: Logger, afterMs = BLIP_MS) {
    this.#log = log;
    this.#afterMs = afterMs;
  }

  /** Call it at each failure. */
  met(reason: string, fields: object, message: string): void {
    const sense = reason.replaceAll(/\d+/g, '0');
    if (this.#reasons.has(sense)) return;
    this.#reasons.add(sense);
    this.#log[this.#isTold ? 'warn' : 'debug'](fields, message);
    this.#warn = () => this.#log.warn(fields, message);
    if (this.#sinceMs !== undefined) return;
    this.#sinceMs = Date.now();
    this.#timer = setTimeout(() => {
      this.#isTold = true;
      this.#warn();
    }, this.#afterMs).unref();
  }

  /** Call it at each success.
   * @param isNews  whether to log it at info level in any case */
  ended(fields: object, message: string, isNews = false): void {
    const lastedMs = this.#sinceMs && Date.now() - this.#sinceMs;
    const isTold = this.#isTold;
    this.forget();
    if (isTold || isNews) this.#log.info({ ...fields, lastedMs }, message);
    else if (lastedMs !== undefined) this.#log.debug({ ...fields, lastedMs }, message);
  }

  /** Ends the outage without a log line. */
  forget(): void {
    clearTimeout(this.#timer);
    this.#sinceMs = undefined;
    this.#isTold = false;
    this.#reasons.clear();
  }
}
