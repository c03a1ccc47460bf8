import { createHash } from 'node:crypto';
import type { Command } from 'ioredis';
import { isDenial } from './error-text.ts';
import type { Refusals } from './refusals.ts';

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
