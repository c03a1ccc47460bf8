import type { Logger } from '../runtime/log.ts';
import { describeRedisError } from './error-text.ts';

/** What a Redis that can be reached refuses, by the part of this process that was refused. */
export class Refusals {
  readonly #address: string;
  readonly #log: Logger;
  readonly #fields: { readonly redis: string; readonly connection: string | undefined };
  readonly #lines = new Map<string, string>();

  /** @param connection  its name, for the log: each connection reports what it meets */
  constructor(address: string, connection: string | undefined, log: Logger) {
    this.#address = address;
    this.#log = log;
    this.#fields = { redis: address, connection };
  }

  /** One refusal in one line, with its fix; undefined while there is none. */
  get line(): string | undefined {
    for (const line of this.#lines.values()) return line;
    return undefined;
  }

  /** Logs the refusal, unless another part has met the same one. */
  add(part: string, error: unknown): void {
    const refusal = describeRedisError(this.#address, error);
    if (![...this.#lines.values()].includes(refusal))
      this.#log.warn({ ...this.#fields, refusal }, 'Redis refuses what it is sent; trying again');
    this.#lines.set(part, refusal);
  }

  /** Redis took what the parts sent. Logs that nothing is refused any more. */
  remove(...parts: readonly string[]): void {
    this.#remove(parts, 'Redis takes again what it is sent');
  }

  /** The part has not been refused again for that long. */
  forget(part: string, sinceMs: number): void {
    this.#remove([part], `Redis has refused nothing for ${sinceMs / 1000} s`);
  }

  #remove(parts: readonly string[], message: string): void {
    if (this.#lines.size === 0) return;
    for (const part of parts) this.#lines.delete(part);
    if (this.#lines.size === 0) this.#log.info(this.#fields, message);
  }
}
