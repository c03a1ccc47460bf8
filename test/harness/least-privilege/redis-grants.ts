import type { Redis } from 'ioredis';
import { redisUsers } from '../redis-users.ts';

/** A grant of k8s/redis/users.acl as text: `USER +COMMAND` or `USER ~PATTERN`. */
type Grant = string;

interface Rights {
  readonly user: string;
  /** As `+get`, `+client|list`. */
  readonly commands: readonly string[];
  /** As `~{csi}:epoch`, `%R~{csi}:drivers`. */
  readonly patterns: readonly string[];
}

/** The rights of each user, and those of its selectors. sutler-all, which is not asked here, has
 * those of two others together. */
function readRights(): readonly Rights[] {
  return redisUsers().flatMap((line) => {
    const [, user = ''] = line.split(' ');
    if (user === 'sutler-all') return [];
    const selectors = [...line.matchAll(/\(([^)]*)\)/g)].map(([, selector]) => selector ?? '');
    return [line.replaceAll(/\([^)]*\)/g, ''), ...selectors].map((text) => {
      const words = text.split(' ');
      return {
        user,
        commands: words.filter((word) => word.startsWith('+')),
        patterns: words.filter((word) => /^(%R)?~/.test(word)),
      };
    });
  });
}

/** Notes which grants of its users a Redis needs for what it is asked. */
export class RedisGrants {
  readonly #rights = readRights();
  readonly #used = new Set<Grant>();
  /** By address. */
  readonly #users = new Map<string, Promise<string>>();
  readonly #redis: Redis;
  #monitor: Redis | undefined;
  #source = '';

  /** @param redis  a connection with all rights */
  constructor(redis: Redis) {
    this.#redis = redis;
  }

  async open(): Promise<void> {
    this.#monitor = await this.#redis.monitor();
    this.#monitor.on('monitor', (_time: string, args: string[], source: string) => {
      // What a script calls follows the call of the script.
      if (source !== 'lua') this.#source = source;
      const asked = this.#source;
      void this.#userOf(asked).then((user) => this.#note(user, args));
    });
  }

  /** The grants that nothing needed. */
  unused(): readonly Grant[] {
    return this.#rights
      .flatMap(({ user, commands, patterns }) =>
        [...commands, ...patterns].map((grant) => `${user} ${grant}`),
      )
      .filter((grant) => !this.#used.has(grant));
  }

  close(): void {
    this.#monitor?.disconnect();
  }

  async #userOf(address: string): Promise<string> {
    let user = this.#users.get(address);
    if (user === undefined) {
      user = this.#redis.client('LIST').then((list) => {
        const line = String(list)
          .split('\n')
          .find((each) => each.includes(` addr=${address} `));
        return / user=(\S+)/.exec(line ?? '')?.[1] ?? '';
      });
      this.#users.set(address, user);
    }
    return user;
  }

  #note(user: string, [name = '', ...args]: readonly string[]): void {
    const command = `+${name.toLowerCase()}`;
    const names = [command, `${command}|${args[0]?.toLowerCase()}`];
    for (const rights of this.#rights.filter((each) => each.user === user)) {
      const granted = rights.commands.filter((each) => names.includes(each));
      if (granted.length === 0) continue;
      const matched = rights.patterns.filter((pattern) =>
        args.some((arg) => matches(pattern, arg)),
      );
      if (rights.patterns.length > 0 && matched.length === 0 && args.some(isKey)) continue;
      for (const grant of [...granted, ...matched]) this.#used.add(`${user} ${grant}`);
    }
  }
}

function isKey(arg: string): boolean {
  return arg.startsWith('{csi}:');
}

/** Whether a key matches a pattern of an ACL, which has no wildcard here but `*`. */
function matches(pattern: string, key: string): boolean {
  const [first = '', ...others] = pattern.replace(/^(%R)?~/, '').split('*');
  const text = [first, ...others].map((part) => part.replaceAll(/[{}.|]/g, String.raw`\$&`));
  return new RegExp(`^${text.join('.*')}$`).test(key);
}
