import { performance } from 'node:perf_hooks';
import type { Redis, RedisOptions } from 'ioredis';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';
import { Denials } from './denials.ts';
import { describeRedisError, isDenial, isRefusal } from './error-text.ts';
import { Refusals } from './refusals.ts';
import { DEFAULT_ACCESS, type RedisAccess, redisSettings } from './access.ts';
import { JoinedWritesRedis } from './joined-writes.ts';
import { OutageLog } from './outage-log.ts';
import { findSentinelFault, hasNoCause, isUnexplained } from './sentinel-fault.ts';
import { redisAddress, type RedisSettings } from './url.ts';

/** What a connection is for. `producer` and `plain` reject commands soon when Redis has gone away,
 * and the caller decides. `worker` keeps commands until Redis is back, as BullMQ requires: the end
 * of a job must not be dropped. */
type RedisRole = 'producer' | 'worker' | 'plain';

/** Options of a connection.
 * @throws UsageError for a URL that can't be read or used; see redisSettings */
export function redisOptions(
  url: string,
  role: RedisRole,
  access: RedisAccess = DEFAULT_ACCESS,
): RedisSettings {
  return {
    ...redisSettings(url, access),
    // CLIENT SETINFO would be one more right, which Redis 7.0 has no name for.
    disableClientInfo: true,
    // openRedis connects after it has attached its listeners.
    lazyConnect: true,
    retryStrategy: (times: number) => Math.min(50 * times, 2000),
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
  /** Why Redis can't be reached now, in one line; undefined while it can. */
  readonly trouble: string | undefined;
  /** What Redis refuses although it can be reached, in one line with the fix; undefined while it
   * refuses nothing. */
  readonly refusal: string | undefined;
  /** Passes the answer of a command on, and remembers whether Redis refused it. For commands that
   * are sent again until Redis takes them; `part` is who sends them. */
  observe<T>(part: string, answer: Promise<T>): Promise<T>;
  /** Calls the listener at each connection that became usable; `isFirst` at the first one. While
   * Redis refuses something, a later connection becomes usable when it is taken.
   * @returns ends that */
  onReady(listener: (isFirst: boolean) => void): () => void;
  /** Ends the connection and all that BullMQ duplicated from it, at once; rejects the commands
   * under way. */
  close(): void;
}

/** The part that was refused where a connection is closed in order to look for the master. */
const LOOKING_FOR_MASTER = 'reconnect';

const LOADING_CHECK_MS = 1_000;

/** Connects, and reconnects until closed.
 * @throws UsageError for a URL that can't be read or used; never because Redis is away */
export function openRedis(options: {
  readonly url: string;
  /** Default: that of a process without flags for it. */
  readonly access?: RedisAccess;
  readonly role: RedisRole;
  /** Shown by CLIENT LIST. */
  readonly name?: string;
  readonly log: Logger;
}): RedisLink {
  const { url, access, role, name, log } = options;
  const settings = redisOptions(url, role, access);
  const address = redisAddress(settings);
  const refusals = new Refusals(address, name, log);
  const shouldReconnect = reconnectOnReadOnly();
  const redis = new DuplicatedRedis({
    ...settings,
    ...(name === undefined ? {} : { connectionName: name }),
    reconnectOnError: (error) => {
      const isReadOnly = shouldReconnect(error);
      if (isReadOnly) refusals.add(LOOKING_FOR_MASTER, error);
      return isReadOnly;
    },
  });
  surviveSecondErrors(redis);
  const denied = new Refusals(address, name, log);
  redis.denials = new Denials(settings.username ?? 'default', denied);
  const outages = access?.outages ?? new OutageLog(log);
  return new Link({ redis, settings, address, refusals, denied, outages });
}

class Link implements RedisLink {
  readonly redis: DuplicatedRedis;
  readonly address: string;
  readonly #settings: RedisSettings;
  readonly #refusals: Refusals;
  /** What its user is denied; it keeps nothing else from going on. */
  readonly #denied: Refusals;
  readonly #outages: OutageLog;
  readonly #listeners = new Listeners<boolean>();
  /** Runs from each connection until Redis is usable or the connection is lost. */
  #loading: NodeJS.Timeout | undefined;
  #trouble: string | undefined;
  #hasConnected = false;
  /** A connection was made that the listeners were not told of. */
  #isUnannounced = false;
  #isClosed = false;
  #isAskingSentinels = false;

  constructor(parts: {
    readonly redis: DuplicatedRedis;
    readonly settings: RedisSettings;
    readonly address: string;
    readonly refusals: Refusals;
    readonly denied: Refusals;
    readonly outages: OutageLog;
  }) {
    const { redis, settings, address, refusals, denied, outages } = parts;
    this.redis = redis;
    this.#settings = settings;
    this.address = address;
    this.#refusals = refusals;
    this.#denied = denied;
    this.#outages = outages;
    this.#trouble =
      `Redis at ${address}: not connected yet; if this lasts, ` +
      'look at its load, and at its host';
    redis.on('error', (error: Error) => {
      if (hasNoCause(error)) return;
      if (isUnexplained(error)) void this.#explainSentinels(error);
      else this.#reportError(error);
    });
    redis.on('connect', () => {
      clearInterval(this.#loading);
      this.#loading = setInterval(() => void this.#checkLoading(), LOADING_CHECK_MS);
    });
    redis.on('close', () => {
      clearInterval(this.#loading);
      this.#connectionClosed();
    });
    redis.on('ready', () => {
      clearInterval(this.#loading);
      this.#trouble = undefined;
      this.#isUnannounced = true;
      this.#announce();
    });
    // 'error' reports a refused connection, and ioredis tries again.
    redis.connect().catch(() => undefined);
  }

  get trouble(): string | undefined {
    return this.#trouble;
  }

  get refusal(): string | undefined {
    return this.#refusals.line ?? this.#denied.line;
  }

  async observe<T>(part: string, answer: Promise<T>): Promise<T> {
    try {
      const value = await answer;
      this.#refusals.remove(part, LOOKING_FOR_MASTER);
      this.#announce();
      return value;
    } catch (error) {
      if (isRefusal(error) && !isDenial(error)) this.#refusals.add(part, error);
      throw error;
    }
  }

  onReady(listener: (isFirst: boolean) => void): () => void {
    return this.#listeners.subscribe(listener);
  }

  close(): void {
    this.#isClosed = true;
    this.#outages.forget(this);
    clearInterval(this.#loading);
    this.#trouble = `Redis at ${this.address}: connection closed`;
    this.redis.disconnectAll();
  }

  #reportError(error: Error): void {
    const { address } = this;
    this.#reportTrouble(describeRedisError(address, error, this.#settings.tls !== undefined));
  }

  async #explainSentinels(error: Error): Promise<void> {
    if (this.#isAskingSentinels) return;
    this.#isAskingSentinels = true;
    const fault = await findSentinelFault(this.#settings);
    this.#isAskingSentinels = false;
    if (this.redis.status !== 'ready') this.#reportError(fault ?? error);
  }

  #reportTrouble(trouble: string): void {
    if (trouble === this.#trouble || this.#isClosed) return;
    this.#trouble = trouble;
    this.#outages.away(this, this.address, trouble);
  }

  #connectionClosed(): void {
    if (this.#trouble !== undefined) return;
    // While Redis refuses something, this may be our own search for the master.
    const refusal = this.#refusals.line;
    if (refusal === undefined)
      this.#reportTrouble(`Redis at ${this.address}: connection lost; waiting for it`);
    else this.#trouble = refusal;
  }

  #announce(): void {
    if (!this.#isUnannounced || this.#trouble !== undefined) return;
    if (this.#refusals.line !== undefined) return;
    const first = !this.#hasConnected;
    this.#hasConnected = true;
    this.#isUnannounced = false;
    this.#outages.back(this, this.address, first);
    this.#listeners.notify(first);
  }

  /** Reports that Redis accepted the connection but still reads its data. ioredis waits for the end
   * of that without a word. */
  async #checkLoading(): Promise<void> {
    const { redis, address } = this;
    if (redis.status !== 'connect') return;
    // The connection reports its own errors.
    const facts = await redis.info('persistence').catch(() => '');
    if (redis.status === 'connect' && /^loading:1/m.test(facts))
      this.#reportTrouble(
        describeRedisError(address, new Error('LOADING Redis is loading the dataset in memory')),
      );
  }
}

/** Remembers its duplicates in order to close them: BullMQ duplicates a connection for its blocking
 * reads, and can't close the duplicate while Redis is down. */
class DuplicatedRedis extends JoinedWritesRedis {
  denials: Denials | undefined;
  readonly #copies = new Set<{ disconnect(): void }>();

  override sendCommand(...parameters: Parameters<JoinedWritesRedis['sendCommand']>): unknown {
    this.denials?.watch(parameters[0]);
    return super.sendCommand(...parameters);
  }

  override duplicate<O extends Partial<RedisOptions> | undefined = undefined>(override?: O) {
    const copy = super.duplicate(override);
    surviveSecondErrors(copy);
    this.#copies.add(copy);
    // BullMQ closes the duplicate of a worker that it closes.
    copy.once('end', () => this.#copies.delete(copy));
    return copy;
  }

  disconnectAll(): void {
    for (const redis of [this, ...this.#copies]) redis.disconnect();
  }
}

/** ioredis listens to the first error of a socket only. After it has refused a server's
 * certificate, the server's alert may be a second one, which would end the process. */
function surviveSecondErrors(redis: Pick<Redis, 'on' | 'stream'>): void {
  redis.on('error', () => void redis.stream?.on('error', () => undefined));
}
