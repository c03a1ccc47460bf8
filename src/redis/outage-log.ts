import type { Logger } from '../runtime/log.ts';
import { Outage } from '../runtime/outage.ts';

/** Logs once for all connections of a process that Redis can't be used, and that it can be used
 * again: not for each connection or each way in which it fails. */
export class OutageLog {
  readonly #outage: Outage;
  readonly #away = new Set<object>();

  constructor(log: Logger) {
    this.#outage = new Outage(log);
  }

  /** @param trouble    one line, with what to do
   * @param isRefusal  whether Redis has answered */
  away(connection: object, redis: string, trouble: string, isRefusal: boolean): void {
    this.#away.add(connection);
    const reason = isRefusal ? trouble : 'unreachable';
    this.#outage.met(reason, { redis, trouble }, 'Redis is not usable; waiting for it');
  }

  back(connection: object, redis: string): void {
    this.#away.delete(connection);
    if (this.#away.size === 0) this.#outage.ended({ redis }, 'Redis is usable');
  }

  /** The connection is closed. */
  forget(connection: object): void {
    this.#away.delete(connection);
    if (this.#away.size === 0) this.#outage.forget();
  }
}
