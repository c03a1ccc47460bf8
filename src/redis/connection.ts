import { performance } from 'node:perf_hooks';
import { Redis, type RedisOptions } from 'ioredis';
import type { Logger } from '../runtime/log.ts';
import { describeRedisError } from './error-text.ts';
import { parseRedisUrl, redisAddress, type RedisSettings } from './url.ts';

/** What a connection is for. `producer` and `plain` reject a command within a second after Redis
 * has gone away, so that the caller decides. `worker` keeps commands until Redis is back, which
 * BullMQ requires: the end of a job must not be dropped. */
type RedisRole = 'producer' | 'worker' | 'plain';

/** Options of a connection.
 * @throws UsageError for a URL that can't be read; see parseRedisUrl */
export function redisOptions(url: string, role: RedisRole): RedisSettings {
  return {
    ...parseRedisUrl(url),
    // openRedis connects after it has attached its listeners; otherwise the first loss could be
    // taken for the first connection.
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

/** A master that was demoted answers READONLY, and a reconnect finds the new master. At most one
 * reconnect per READ_ONLY_RECONNECT_MS, since it may find the same replica again. */
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

interface RedisLinkOptions {
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
  const listeners: ((isFirst: boolean) => void)[] = [];
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
    for (const listener of listeners) listener(first);
  });
  // 'error' reports a refused connection, and ioredis tries again.
  redis.connect().catch(() => undefined);
  return {
    redis,
    address,
    get trouble() {
      return trouble;
    },
    onReady: (listener) => void listeners.push(listener),
    close: () => {
      isClosed = true;
      trouble = `Redis at ${address}: connection closed`;
      redis.disconnectAll();
    },
  };
}

/** Remembers its duplicates: BullMQ duplicates the connection it is given for its blocking reads,
 * and can't close the copy while Redis is down. */
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
