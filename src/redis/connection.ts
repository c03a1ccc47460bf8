import { performance } from 'node:perf_hooks';
import { Redis, type RedisOptions } from 'ioredis';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';
import { describeRedisError } from './error-text.ts';
import { parseRedisUrl, redisAddress, type RedisSettings } from './url.ts';

/** What a connection is for. `producer` and `plain` reject commands soon when Redis has gone away,
 * and the caller decides. `worker` keeps commands until Redis is back, as BullMQ requires: the end
 * of a job must not be dropped. */
type RedisRole = 'producer' | 'worker' | 'plain';

/** Options of a connection.
 * @throws UsageError for a URL that can't be read; see parseRedisUrl */
export function redisOptions(url: string, role: RedisRole): RedisSettings {
  return {
    ...parseRedisUrl(url),
    // openRedis connects after it has attached its listeners.
    lazyConnect: true,
    retryStrategy: (times: number) => Math.min(50 * times, 2000),
    reconnectOnError: reconnectOnReadOnly(),
    connectTimeout: 5000,
    // A connection that is closed while it is broken keeps the process alive for this long.
    disconnectTimeout: 200,
    // Notices a peer that vanished silently; longer than BullMQ's longest blocking read of 10 s.
    socketTimeout: 15_000,
    ...(role === 'worker'
      ? { maxRetriesPerRequest: null }
      : { maxRetriesPerRequest: 1, commandTimeout: 5000 }),
  };
}

const READ_ONLY_RECONNECT_MS = 2_000;

/** Reconnects when a demoted master answers READONLY, to find the new one. At most once per
 * READ_ONLY_RECONNECT_MS, since it may find the same replica again. */
function reconnectOnReadOnly(): (error: Error) => boolean {
  let lastMs = -Infinity;
  return (error) => {
    const nowMs = performance.now();
    if (!error.message.includes('READONLY') || nowMs - lastMs < READ_ONLY_RECONNECT_MS)
      return false;
    lastMs = nowMs;
    return true;
  };
}

/** A connection that reconnects until it is closed. */
export interface RedisLink {
  readonly redis: Redis;
  /** host:port */
  readonly address: string;
  /** Why Redis is not usable now, in one line; undefined while it is. */
  readonly trouble: string | undefined;
  /** Calls the listener at each connection that became usable; `isFirst` at the first one. */
  onReady(listener: (isFirst: boolean) => void): void;
  /** Ends the connection and all that BullMQ duplicated from it, at once; rejects the commands
   * under way. */
  close(): void;
}

/** Connects, and reconnects until closed.
 * @throws UsageError for an unreadable URL; never because Redis is away */
export function openRedis(options: {
  readonly url: string;
  readonly role: RedisRole;
  /** Shown by CLIENT LIST. */
  readonly name?: string;
  readonly log: Logger;
}): RedisLink {
  const { url, role, name, log } = options;
  const settings = redisOptions(url, role);
  const address = redisAddress(settings);
  const redis = new DuplicatedRedis(
    name === undefined ? settings : { ...settings, connectionName: name },
  );
  const listeners = new Listeners<boolean>();
  let trouble: string | undefined = `Redis at ${address}: not connected yet`;
  let hasConnected = false;
  let isClosed = false;
  const reportTrouble = (line: string): void => {
    if (line === trouble || isClosed) return;
    trouble = line;
    log.warn({ redis: address, trouble }, 'Redis is not usable; waiting for it');
  };
  redis.on('error', (error: Error) => reportTrouble(describeRedisError(address, error)));
  redis.on('close', () => {
    if (trouble === undefined)
      reportTrouble(`Redis at ${address}: connection lost; waiting for it`);
  });
  redis.on('ready', () => {
    const first = !hasConnected;
    trouble = undefined;
    hasConnected = true;
    log.info({ redis: address, first }, 'Redis is usable');
    listeners.notify(first);
  });
  // 'error' reports a refused connection, and ioredis tries again.
  redis.connect().catch(() => undefined);
  return {
    redis,
    address,
    get trouble() {
      return trouble;
    },
    onReady: (listener) => listeners.subscribe(listener),
    close: () => {
      isClosed = true;
      trouble = `Redis at ${address}: connection closed`;
      redis.disconnectAll();
    },
  };
}

/** Remembers its duplicates in order to close them: BullMQ duplicates a connection for its blocking
 * reads, and can't close the duplicate while Redis is down. */
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
