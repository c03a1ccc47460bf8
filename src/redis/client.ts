import { performance } from 'node:perf_hooks';
import { Redis, type RedisOptions } from 'ioredis';
import { backoffMs } from '../runtime/clock.ts';
import { DEFAULT_ACCESS, type RedisAccess, redisSettings, type RedisSettings } from './access.ts';

/** What a connection is for. If Redis goes away, `producer` and `plain` soon reject commands, and
 * the caller decides. `worker` keeps commands until Redis is back, as BullMQ requires: the end of a
 * job must not be dropped. */
export type RedisRole = 'producer' | 'worker' | 'plain';

/** Makes the options of a connection.
 * @throws UsageError for a URL that can't be read or used; see redisSettings */
export function redisOptions(
  url: string,
  role: RedisRole,
  access: RedisAccess = DEFAULT_ACCESS,
): RedisSettings {
  return {
    ...redisSettings(url, access),
    // CLIENT SETINFO would need one more right, which can't be named in Redis 7.0.
    disableClientInfo: true,
    // openRedis connects after it has attached its listeners.
    lazyConnect: true,
    retryStrategy: (times: number) => backoffMs({ startMs: 50, maxMs: 2_000 }, times),
    connectTimeout: 5000,
    // Closing a broken connection keeps the process alive for this long.
    disconnectTimeout: 200,
    // Notices a peer that vanished silently; longer than BullMQ's longest blocking read of 10 s.
    socketTimeout: 15_000,
    ...(role === 'worker'
      ? { maxRetriesPerRequest: null }
      : { maxRetriesPerRequest: 1, commandTimeout: 5000 }),
    // A transaction that is sent again no longer watches its keys.
    ...(role === 'producer' ? { autoResendUnfulfilledCommands: false } : {}),
  };
}

const READ_ONLY_RECONNECT_MS = 2_000;

/** Reconnects when a demoted master answers READONLY, to find the new master. Does so at most every
 * READ_ONLY_RECONNECT_MS, since it may find the same replica again. */
export function reconnectOnReadOnly(): (error: Error) => boolean {
  let lastMs = -Infinity;
  return (error) => {
    const nowMs = performance.now();
    if (!error.message.includes('READONLY') || nowMs - lastMs < READ_ONLY_RECONNECT_MS)
      return false;
    lastMs = nowMs;
    return true;
  };
}

/** ioredis' client, with two changes:
 *
 * - It sends the commands of one turn of the event loop in one write, since each write costs a
 *   system call and may wake up Redis. Commands keep their order, and each fails or is sent again
 *   on its own. (ioredis' enableAutoPipelining waits for all answers to a write before the next
 *   write. If the connection is lost after the first answer, it rejects the rest.)
 * - It closes its duplicates: BullMQ duplicates a connection for its blocking reads, and can't
 *   close the duplicate while Redis is down. */
export class RedisClient extends Redis {
  readonly #copies = new Set<{ disconnect(): void }>();
  #isJoining = false;

  constructor(options: RedisSettings) {
    super(options);
    surviveSecondErrors(this);
  }

  /** ioredis calls this for each command, including those of scripts and pipelines. */
  override sendCommand(...parameters: Parameters<Redis['sendCommand']>): unknown {
    if (!this.#isJoining && this.status === 'ready') this.#joinWrites();
    return super.sendCommand(...parameters);
  }

  override duplicate<O extends Partial<RedisOptions> | undefined = undefined>(override?: O) {
    const copy = super.duplicate(override);
    surviveSecondErrors(copy);
    this.#copies.add(copy);
    // BullMQ itself closes the duplicate when it closes the worker.
    copy.once('end', () => this.#copies.delete(copy));
    return copy;
  }

  disconnectAll(): void {
    for (const redis of [this, ...this.#copies]) redis.disconnect();
  }

  /** Collects writes until the event loop has handled the input of this turn. A stream that ends
   * earlier writes them at its end. */
  #joinWrites(): void {
    const { stream } = this;
    this.#isJoining = true;
    stream.cork();
    setImmediate(() => {
      this.#isJoining = false;
      stream.uncork();
    });
  }
}

/** ioredis listens only to the first error of a socket. After it has refused a server's
 * certificate, the server's alert may be a second error, which would end the process. */
function surviveSecondErrors(redis: Pick<Redis, 'on' | 'stream'>): void {
  redis.on('error', () => void redis.stream?.on('error', () => undefined));
}
