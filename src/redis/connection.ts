import type { Redis } from 'ioredis';
import type { Logger } from '../runtime/log.ts';
import { type RedisAccess, redisAddress } from './access.ts';
import { reconnectOnReadOnly, RedisClient, redisOptions, type RedisRole } from './client.ts';
import { describeRedisError, isRefusal } from './error-text.ts';
import { OutageLog } from './outage-log.ts';

/** A connection that reconnects until it is closed. */
export interface RedisLink {
  readonly redis: Redis;
  /** host:port */
  readonly address: string;
  /** Why Redis can't be reached now, in one line; undefined if it can. */
  readonly trouble: string | undefined;
  /** Calls the listener whenever a connection is usable.
   * @returns a function that ends the subscription */
  onReady(listener: () => void): () => void;
  /** Ends the connection and BullMQ's duplicates of it at once. Rejects the commands under way. */
  close(): void;
}

/** Connects, and reconnects until closed.
 * @throws UsageError for a URL that can't be read or used. Does not throw if Redis is down */
export function openRedis(options: {
  readonly url: string;
  /** Default: no flag is set. */
  readonly access?: RedisAccess;
  readonly role: RedisRole;
  /** Shown by CLIENT LIST. */
  readonly name?: string;
  readonly log: Logger;
}): RedisLink {
  const { url, access, role, name, log } = options;
  const settings = redisOptions(url, role, access);
  const address = redisAddress(settings);
  const redis = new RedisClient({
    ...settings,
    ...(name === undefined ? {} : { connectionName: name }),
    reconnectOnError: reconnectOnReadOnly(),
  });
  const outages = access?.outages ?? new OutageLog(log);
  let trouble: string | undefined =
    `Redis at ${address}: not connected yet; if this lasts, check its load and its host`;
  let isClosed = false;
  const report = (line: string, error?: Error): void => {
    if (line === trouble || isClosed) return;
    trouble = line;
    outages.away(redis, address, line, isRefusal(error));
  };
  redis.on('error', (error: Error) => report(describeRedisError(address, error), error));
  redis.on('close', () => {
    if (trouble === undefined) report(`Redis at ${address}: connection lost; reconnecting`);
  });
  redis.on('ready', () => {
    trouble = undefined;
    outages.back(redis, address);
  });
  // 'error' reports a refused connection, and ioredis tries again.
  redis.connect().catch(() => undefined);
  return {
    redis,
    address,
    get trouble() {
      return trouble;
    },
    onReady(listener) {
      const onReady = (): void => listener();
      redis.on('ready', onReady);
      return () => void redis.off('ready', onReady);
    },
    close() {
      isClosed = true;
      trouble = `Redis at ${address}: connection closed`;
      outages.forget(redis);
      redis.disconnectAll();
    },
  };
}
