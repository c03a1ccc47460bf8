import type { Logger } from '../runtime/log.ts';

/** Logs for all connections of a process that Redis can't be reached, and that it can again: each
 * once, not once for each connection and for each way in which it fails to connect. */
export class OutageLog {
  readonly #log: Logger;
  /** The connections that are away. */
  readonly #away = new Set<object>();
  /** What was said since the first of them was. */
  readonly #said = new Set<string>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** @param trouble  one line, with what to do */
  away(connection: object, redis: string, trouble: string): void {
    const kind = /can't be reached|does not answer|connection lost/.test(trouble)
      ? 'unreachable'
      : trouble;
    const level = this.#said.has(kind) ? 'debug' : 'warn';
    this.#away.add(connection);
    this.#said.add(kind);
    this.#log[level]({ redis, trouble }, 'Redis is not usable; waiting for it');
  }

  /** @param first  whether this is the first time that the connection is usable */
  back(connection: object, redis: string, first: boolean): void {
    this.#away.delete(connection);
    const level = this.#away.size === 0 ? 'info' : 'debug';
    if (this.#away.size === 0) this.#said.clear();
    this.#log[level]({ redis, first }, 'Redis is usable');
  }

  /** The connection is closed. */
  forget(connection: object): void {
    this.#away.delete(connection);
    if (this.#away.size === 0) this.#said.clear();
  }
}
