import { createHash } from 'node:crypto';
import type { Command } from 'ioredis';
import type { Logger } from '../runtime/log.ts';
import { Outage } from '../runtime/outage.ts';
import { describeRedisError, isDenial } from './error-text.ts';

// What is logged, and said in /readyz, of a Redis that is away, that refuses, or that denies.

/** Logs for all connections of a process that Redis can't be reached, and that it can again: each
 * once, not once for each connection and for each way in which it fails to connect. */
export class OutageLog {
  readonly #outage: Outage;
  readonly #away = new Set<object>();

  constructor(log: Logger) {
    this.#outage = new Outage(log);
  }

  /** @param trouble  one line, with what to do */
  away(connection: object, redis: string, trouble: string): void {
    const kind = /can't be reached|does not answer|connection lost/.test(trouble)
      ? 'unreachable'
      : trouble;
    this.#away.add(connection);
    this.#outage.met(kind, { redis, trouble }, 'Redis is not usable; waiting for it');
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

/** Longer than the longest time between two runs of a key that do not get through to Redis. */
const ENDS_AFTER_MS = 35_000;

/** What Redis denies the user of a connection. Its error names neither user nor key, so that they
 * are put into it; each pair of command and keys counts as refused until Redis takes it, or has not
 * denied it for ENDS_AFTER_MS: a command that only a failing claim needs may not come again. */
export class Denials {
  readonly #user: string;
  readonly #refusals: Refusals;
  readonly #ends = new Map<string, NodeJS.Timeout>();

  constructor(user: string, refusals: Refusals) {
    this.#user = user;
    this.#refusals = refusals;
  }

  /** To be called with each command before it is sent. */
  watch(command: Command): void {
    const { reject } = command;
    command.reject = (error) => {
      if (isDenial(error)) this.#add(command, error);
      reject(error);
    };
    if (this.#refusals.line === undefined) return;
    const done = (): void => this.#refusals.remove(partOf(command));
    command.promise.then(done, () => undefined);
  }

  #add(command: Command, error: Error): void {
    const keys = keysOf(command).join(', ') || 'no key';
    error.message = `NOPERM user ${this.#user} may not run ${nameOf(command)} on ${keys}`;
    const part = partOf(command);
    this.#refusals.add(part, error);
    clearTimeout(this.#ends.get(part));
    const end = (): void => {
      this.#ends.delete(part);
      this.#refusals.forget(part, ENDS_AFTER_MS);
    };
    this.#ends.set(part, setTimeout(end, ENDS_AFTER_MS).unref());
  }
}

function isScript({ name }: Command): boolean {
  return name === 'eval' || name === 'evalsha';
}

/** Redis does not say which command of a script it denied. */
function nameOf(command: Command): string {
  return isScript(command) ? 'a script' : command.name.toUpperCase();
}

/** Up to the second part of each key, as `{csi}:volume:*`: a driver has many keys of one kind. */
function keysOf(command: Command): readonly string[] {
  const patterns = command.getKeys().map((key) => {
    const [prefix = '', kind, ...rest] = key.toString().split(':');
    return [prefix, kind, ...(rest.length === 0 ? [] : ['*'])].join(':');
  });
  return [...new Set(patterns)];
}

/** Equal for commands that Redis takes or denies alike. */
function partOf(command: Command): string {
  const [script = ''] = isScript(command) ? command.args.map(String) : [];
  const digest = command.name === 'eval' ? createHash('sha1').update(script).digest('hex') : script;
  return ['denied', nameOf(command), digest, ...keysOf(command)].join(' ');
}
