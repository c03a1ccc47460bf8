import { performance } from 'node:perf_hooks';

import { Redis } from 'ioredis';
import type { RedisOptions } from 'ioredis';

import { UsageError } from '../runtime/flags.ts';
import type { Logger } from '../runtime/log.ts';

/** What a connection is for. `producer` and `plain` refuse a command within a second of Redis going
 * away, so that the caller decides; `worker` keeps commands until Redis is back, as BullMQ wants
 * it, because what they say (a job's end) must not be dropped. */
export type RedisRole = 'producer' | 'worker' | 'plain';

/** What ioredis takes, but for the option that changes the types of all replies. */
export type RedisSettings = Omit<RedisOptions, 'replyMapping'>;

const FORMS =
  'redis://[user:password@]host[:port][/db], rediss:// for TLS, unix:///path, or redis-sentinel://host:port,host:port/master-name';

/** Options of a connection.
 * @param url  see FORMS; user and password percent-encoded
 * @throws UsageError for a URL that can't be read; the message never repeats it, it may hold a
 *   password */
export function redisOptions(url: string, role: RedisRole): RedisSettings {
  return {
    ...parseRedisUrl(url),
    // Set up later, when the listeners are attached: otherwise the first loss can be taken for the
    // first connection.
    lazyConnect: true,
    retryStrategy: (times: number) => Math.min(50 * times, 2000),
    // A failed-over master answers READONLY: reconnect to find the new one.
    reconnectOnError: readOnlyReconnect(),
    connectTimeout: 5000,
    // A connection that is closed while it is broken keeps the process for this long.
    disconnectTimeout: 200,
    // Notices a peer that vanished without a word; longer than BullMQ's longest block of 10 s.
    socketTimeout: 15_000,
    ...(role === 'worker'
      ? { maxRetriesPerRequest: null }
      : { maxRetriesPerRequest: 1, commandTimeout: 5000 }),
  };
}

/** A reconnect finds the new master; where it finds the same replica again, looking for it must not
 * take all the time. */
function readOnlyReconnect(): (error: Error) => boolean {
  let lastMs = -Infinity;
  return (error) => {
    if (!error.message.includes('READONLY') || performance.now() - lastMs < READ_ONLY_RECONNECT_MS)
      return false;
    lastMs = performance.now();
    return true;
  };
}

const READ_ONLY_RECONNECT_MS = 2_000;

/** Host and port of a Redis URL, for people to read; never user or password. */
export function redisAddress(options: RedisSettings): string {
  if (options.path !== undefined) return options.path;
  if (options.sentinels !== undefined) {
    return `${options.sentinels.map(({ host, port }) => `${host}:${port}`).join(',')}/${options.name}`;
  }
  return `${options.host ?? '127.0.0.1'}:${options.port ?? 6379}`;
}

function parseRedisUrl(text: string): RedisSettings {
  const sentinel =
    /^(redis|rediss)-sentinel:\/\/(?:([^@/]*)@)?([^@/]+)\/([^/?]+)(?:\/(\d+))?$/.exec(text);
  if (sentinel !== null) {
    const [, scheme, login = '', hosts = '', name = '', db] = sentinel;
    const tls = scheme === 'rediss';
    return {
      sentinels: hosts.split(',').map((host) => hostAndPort(host, 26_379)),
      name: decode(name),
      ...credentials(...splitLogin(login)),
      ...(db === undefined ? {} : { db: Number(db) }),
      ...(tls ? { tls: {}, enableTLSForSentinelMode: true } : {}),
    };
  }
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new UsageError(`--redis-url is not a URL: write ${FORMS}`);
  }
  if (url.search !== '' || url.hash !== '')
    throw new UsageError(`--redis-url has parameters that sutler does not know: write ${FORMS}`);
  if (url.protocol === 'unix:')
    return { path: decode(url.pathname), ...credentials(url.username, url.password) };
  if (url.protocol !== 'redis:' && url.protocol !== 'rediss:') {
    throw new UsageError(`--redis-url begins with ${url.protocol}//: write ${FORMS}`);
  }
  if (url.hostname === '') throw new UsageError(`--redis-url has no host: write ${FORMS}`);
  const db = url.pathname.replace(/^\//, '');
  if (!/^\d*$/.test(db))
    throw new UsageError(`--redis-url ends with /${db}: the last part is a database number`);
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  return {
    host,
    port: url.port === '' ? 6379 : Number(url.port),
    ...credentials(url.username, url.password),
    ...(db === '' ? {} : { db: Number(db) }),
    ...(url.protocol === 'rediss:' ? { tls: { servername: host } } : {}),
  };
}

function hostAndPort(text: string, defaultPort: number): { host: string; port: number } {
  const match = /^(\[[^\]]+\]|[^:]+)(?::(\d{1,5}))?$/.exec(text);
  if (match === null)
    throw new UsageError(`--redis-url has a host that can't be read: write ${FORMS}`);
  return {
    host: (match[1] ?? '').replace(/^\[(.*)\]$/, '$1'),
    port: match[2] === undefined ? defaultPort : Number(match[2]),
  };
}

function splitLogin(login: string): [string, string] {
  const colon = login.indexOf(':');
  return colon === -1 ? [login, ''] : [login.slice(0, colon), login.slice(colon + 1)];
}

function credentials(username: string, password: string): RedisSettings {
  return {
    ...(username === '' ? {} : { username: decode(username) }),
    ...(password === '' ? {} : { password: decode(password) }),
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new UsageError(
      '--redis-url has a % that is not followed by two hex digits: write %25 for a percent sign',
    );
  }
}

/** A connection that is kept for ever: what is wrong with it can be read, and closing it never
 * waits. */
export interface RedisLink {
  readonly redis: Redis;
  /** host:port */
  readonly address: string;
  /** Why it is not usable now, in one line; undefined when it is. */
  readonly trouble: string | undefined;
  /** Hears of each connection that became usable; `first` for the first one. */
  onReady(listener: (first: boolean) => void): void;
  /** Ends the connection and all that BullMQ duplicated from it, at once; what was under way is
   * refused. */
  close(): void;
}

export interface RedisLinkOptions {
  readonly url: string;
  readonly role: RedisRole;
  /** Shown by CLIENT LIST. */
  readonly name?: string;
  readonly log: Logger;
}

/** Connects, and reconnects until closed.
 * @throws UsageError for an unreadable URL; never because Redis is away */
export function openRedis(options: RedisLinkOptions): RedisLink {
  const { log } = options;
  const settings = redisOptions(options.url, options.role);
  const address = redisAddress(settings);
  const redis = new DuplicatedRedis({
    ...settings,
    ...(options.name === undefined ? {} : { connectionName: options.name }),
  });
  const listeners: ((first: boolean) => void)[] = [];
  let trouble: string | undefined = `Redis at ${address}: not connected yet`;
  let connected = false;
  let closed = false;
  const say = (line: string): void => {
    if (line === trouble || closed) return;
    trouble = line;
    log.warn({ redis: address, trouble }, 'Redis is not usable; waiting for it');
  };
  redis.on('error', (error: Error) => say(describeRedisError(address, error)));
  redis.on('close', () => {
    if (trouble === undefined) say(`Redis at ${address}: connection lost; waiting for it`);
  });
  redis.on('ready', () => {
    trouble = undefined;
    const first = !connected;
    connected = true;
    log.info({ redis: address, first }, 'Redis is usable');
    for (const listener of listeners) listener(first);
  });
  // A refusal is told by 'error', and tried again.
  redis.connect().catch(() => undefined);
  return {
    redis,
    address,
    get trouble() {
      return trouble;
    },
    onReady: (listener) => void listeners.push(listener),
    close: () => {
      closed = true;
      trouble = `Redis at ${address}: connection closed`;
      redis.disconnectAll();
    },
  };
}

/** What went wrong with Redis and what to do, in one line; never a password. */
export function describeRedisError(address: string, error: Error): string {
  const code = 'code' in error && typeof error.code === 'string' ? error.code : '';
  const [word = ''] = error.message.split(/[\s:]/, 1);
  // A script's refusal begins with other words in some versions.
  const forbidden = /NOPERM|can't run this command or subcommand/.test(error.message);
  if (forbidden)
    return `Redis at ${address}: its user may not do what is needed; grant it: ${error.message.replace(/ script: .*$/, '')}`;
  if (
    ['WRONGPASS', 'NOAUTH'].includes(word) ||
    /invalid (username|password)/i.test(error.message)
  ) {
    return `Redis at ${address} refuses the login (${word}): correct user and password in --redis-url or REDIS_URL`;
  }
  // Older versions put the reason into the words of a script's failure.
  const refusal = /\b(OOM|READONLY|LOADING|MISCONF|CLUSTERDOWN|MASTERDOWN)\b/.exec(
    error.message,
  )?.[1];
  if (refusal !== undefined) {
    const fix = REFUSALS[refusal];
    return `Redis at ${address}: ${error.message.replace(/\.? script: .*$/, '')}${fix === undefined ? '' : `: ${fix}`}`;
  }
  return `Redis at ${address} can't be reached (${code === '' ? error.message : code}): start it, or correct --redis-url`;
}

/** What to do about a Redis that is there but refuses. */
const REFUSALS: Readonly<Record<string, string>> = {
  OOM: 'raise maxmemory',
  READONLY: 'name the master in --redis-url, or the Sentinels, which know it',
  MISCONF: 'look at its disk',
};

/** BullMQ duplicates the connection it is given for its blocking reads and has no handle on the
 * copy that works while Redis is down. */
class DuplicatedRedis extends Redis {
  readonly #copies: { disconnect(): void }[] = [];

  override duplicate<O extends Partial<RedisOptions> | undefined = undefined>(override?: O) {
    const copy = super.duplicate(override);
    this.#copies.push(copy);
    return copy;
  }

  disconnectAll(): void {
    for (const redis of [this, ...this.#copies]) redis.disconnect();
  }
}

/** Settings of Redis that risk volumes, one line each with its fix; empty when all is well. INFO
 * alone is asked: managed Redis often forbids CONFIG. */
export async function checkSettings(redis: Pick<Redis, 'info'>): Promise<string[]> {
  let text: string;
  try {
    text = await redis.info();
  } catch (error) {
    return [
      `could not check Redis' settings (${error instanceof Error ? error.message : String(error)}): allow INFO, or check AOF, noeviction and version by hand`,
    ];
  }
  const facts = new Map(
    text
      .split(/\r?\n/)
      .map(
        (line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)] as const,
      ),
  );
  const problems: string[] = [];
  const version = facts.get('redis_version');
  if (version === undefined)
    problems.push('could not check the version of Redis: use 6.2 or later');
  else if (isOlder(version, 6, 2))
    problems.push(`Redis ${version} is too old: upgrade to 6.2 or later`);
  const eviction = facts.get('maxmemory_policy');
  if (eviction === undefined)
    problems.push('could not check the eviction policy of Redis: set maxmemory-policy noeviction');
  else if (eviction !== 'noeviction')
    problems.push(
      `Redis may evict jobs (maxmemory-policy ${eviction}): set maxmemory-policy noeviction`,
    );
  if (facts.get('role') === 'slave')
    problems.push(
      'Redis is a read-only replica: name the master in --redis-url, or the Sentinels, which know it',
    );
  const limit = Number(facts.get('maxmemory') ?? 0);
  if (limit > 0 && Number(facts.get('used_memory') ?? 0) > limit)
    problems.push('Redis is out of memory and takes no writes: raise maxmemory');
  if (facts.get('aof_last_write_status') === 'err')
    problems.push('Redis could not write its append-only file: look at its disk');
  const appendOnly = facts.get('aof_enabled');
  if (appendOnly === undefined)
    problems.push('could not check whether Redis keeps an append-only file: set appendonly yes');
  else if (appendOnly !== '1')
    problems.push('Redis forgets jobs when it restarts (no append-only file): set appendonly yes');
  return problems;
}

function isOlder(version: string, major: number, minor: number): boolean {
  const [first = 0, second = 0] = version.split('.').map(Number);
  return first < major || (first === major && second < minor);
}
