import type { Redis } from 'ioredis';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';
import { type RedisAccess, redisAddress, type RedisSettings } from './access.ts';
import { reconnectOnReadOnly, RedisClient, redisOptions, type RedisRole } from './client.ts';
import {
  describeRedisError,
  findSentinelFault,
  hasNoCause,
  isDenial,
  isRefusal,
  isUnexplained,
} from './error-text.ts';
import { Denials, OutageLog, Refusals } from './troubles.ts';

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
  const redis = new RedisClient({
    ...settings,
    ...(name === undefined ? {} : { connectionName: name }),
    reconnectOnError: (error) => {
      const isReadOnly = shouldReconnect(error);
      if (isReadOnly) refusals.add(LOOKING_FOR_MASTER, error);
      return isReadOnly;
    },
  });
  const denied = new Refusals(address, name, log);
  redis.denials = new Denials(settings.username ?? 'default', denied);
  const outages = access?.outages ?? new OutageLog(log);
  return new Link({ redis, settings, address, refusals, denied, outages });
}

interface LinkParts {
  readonly redis: RedisClient;
  readonly settings: RedisSettings;
  readonly address: string;
  readonly refusals: Refusals;
  /** What its user is denied; it keeps nothing else from going on. */
  readonly denied: Refusals;
  readonly outages: OutageLog;
}

class Link implements RedisLink {
  readonly redis: RedisClient;
  readonly address: string;
  readonly #parts: LinkParts;
  readonly #listeners = new Listeners<boolean>();
  /** Runs from each connection until Redis is usable or the connection is lost. */
  #loading: NodeJS.Timeout | undefined;
  #trouble: string | undefined;
  #hasConnected = false;
  /** A connection was made that the listeners were not told of. */
  #isUnannounced = false;
  #isClosed = false;
  #isAskingSentinels = false;

  constructor(parts: LinkParts) {
    const { redis, address } = parts;
    this.#parts = parts;
    this.redis = redis;
    this.address = address;
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
    return this.#parts.refusals.line ?? this.#parts.denied.line;
  }

  async observe<T>(part: string, answer: Promise<T>): Promise<T> {
    try {
      const value = await answer;
      this.#parts.refusals.remove(part, LOOKING_FOR_MASTER);
      this.#announce();
      return value;
    } catch (error) {
      if (isRefusal(error) && !isDenial(error)) this.#parts.refusals.add(part, error);
      throw error;
    }
  }

  onReady(listener: (isFirst: boolean) => void): () => void {
    return this.#listeners.subscribe(listener);
  }

  close(): void {
    this.#isClosed = true;
    this.#parts.outages.forget(this);
    clearInterval(this.#loading);
    this.#trouble = `Redis at ${this.address}: connection closed`;
    this.redis.disconnectAll();
  }

  #reportError(error: Error): void {
    const { address } = this;
    this.#reportTrouble(describeRedisError(address, error, this.#parts.settings.tls !== undefined));
  }

  async #explainSentinels(error: Error): Promise<void> {
    if (this.#isAskingSentinels) return;
    this.#isAskingSentinels = true;
    const fault = await findSentinelFault(this.#parts.settings);
    this.#isAskingSentinels = false;
    if (this.redis.status !== 'ready') this.#reportError(fault ?? error);
  }

  #reportTrouble(trouble: string): void {
    if (trouble === this.#trouble || this.#isClosed) return;
    this.#trouble = trouble;
    this.#parts.outages.away(this, this.address, trouble);
  }

  #connectionClosed(): void {
    if (this.#trouble !== undefined) return;
    // While Redis refuses something, this may be our own search for the master.
    const refusal = this.#parts.refusals.line;
    if (refusal === undefined)
      this.#reportTrouble(`Redis at ${this.address}: connection lost; waiting for it`);
    else this.#trouble = refusal;
  }

  #announce(): void {
    if (!this.#isUnannounced || this.#trouble !== undefined) return;
    if (this.#parts.refusals.line !== undefined) return;
    const first = !this.#hasConnected;
    this.#hasConnected = true;
    this.#isUnannounced = false;
    this.#parts.outages.back(this, this.address);
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
