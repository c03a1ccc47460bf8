import { randomBytes } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import type { RedisLink } from '../redis/connection.ts';
import type { DriverPlace } from '../redis/key-prefix.ts';
import { defineNamedScript } from '../redis/named-script.ts';
import type { Logger } from '../runtime/log.ts';
import { type ClaimCopy, jobData, keyId, type KeyToQueue, sealedCopy } from './contract.ts';
import { queueRoot } from './queue-keys.ts';
import { MAX_SILENCE_MS, WatchLifeWriter } from './watch-life.ts';

/** Where the copies of claims come from. */
export interface CopySource {
  /** When the watch of claims last brought something, by performance.now(); undefined while it is
   * interrupted, and while this process does not lead. */
  readonly heardMs: () => number | undefined;
  /** @param part  all that the seal covers */
  readonly seal: (part: readonly string[]) => string;
}

export interface ClaimCopiesOptions extends DriverPlace {
  readonly link: RedisLink;
  readonly source: CopySource;
  /** Whether a batch of jobs is being made: Redis may lack what the watch has brought. */
  readonly isBusy: () => boolean;
  readonly log: Logger;
}

const RENEWALS_AT_ONCE = 200;
/** How often workers are told that the watch lives, if it has brought something since. */
const LIFE_PERIOD_MS = 1_000;
/** Not before each batch. */
const LIFE_PAUSE_MS = 500;

/** On BullMQ's own keys, because one call serves 200 keys: by `Job.updateData` each would cost
 * three round trips, and there is one for each claim that is bound. */
const replaceData = defineNamedScript({
  keys: ['root'],
  args: { renewals: 'text' },
  answers: { ok: {} },
  lua: `
for _, renewal in ipairs(cjson.decode(renewals)) do
  local jobId = redis.call('GET', root .. 'de:' .. renewal.keyId)
  -- Most keys have none: their claim was bound.
  if jobId then
    local data, runs = unpack(redis.call('HMGET', root .. jobId, 'data', 'ats'))
    if data and not runs then redis.call('HSET', root .. jobId, 'data', renewal.data) end
  end
end
return {'ok'}
`,
});

/** Keeps the copies of claims in a driver's jobs as good as the watch, and tells workers that it
 * lives (invariant 1). The producer asks it in this order for each batch: `renewJobs`,
 * `copyOf` for each claim, `tellLife`, and only then are the jobs sent. */
export class ClaimCopies {
  readonly #options: ClaimCopiesOptions;
  readonly #lifeWriter: WatchLifeWriter;
  readonly #lifeTimer: NodeJS.Timeout;
  /** Claims that have changed since their jobs got copies, by key id. */
  readonly #renewals = new Map<string, KeyToQueue>();
  #watch = newName();
  /** All that the watch had brought by then is in Redis. */
  #heardMs: number | undefined;
  /** When the life of the watch was written last, and what it was. */
  #life = { writtenMs: -Infinity, heardMs: -Infinity };

  constructor(options: ClaimCopiesOptions) {
    this.#options = options;
    this.#lifeWriter = new WatchLifeWriter({ ...options, redis: options.link.redis });
    this.#lifeTimer = setInterval(() => void this.#tellLifeWhenIdle(), LIFE_PERIOD_MS);
  }

  /** Claims that have changed and whose jobs do not know. */
  get pending(): number {
    return this.#renewals.size;
  }

  /** Copies of before are used no more. Called when Redis may lack renewals: for each connection,
   * and when a claim changes while no watch lives. */
  forget(): void {
    this.#watch = newName();
  }

  /** The claim has changed since a job of it may have got a copy.
   * @param isAdding  jobs are on their way to Redis */
  renew(key: KeyToQueue, isAdding: boolean): void {
    const id = keyId(key);
    // As in a process that does not lead. An earlier change that is yet to be sent is replaced.
    const isNews = !isAdding && !this.#renewals.has(id);
    if (isNews && this.#options.source.heardMs() === undefined) this.forget();
    else this.#renewals.set(id, key);
  }

  /** Gives jobs that wait the copies of now, or none. What fails is tried again with the next
   * batch. */
  async renewJobs(queue: string): Promise<void> {
    const { link, prefix, source } = this.#options;
    // Before they are sent: those of all that the watch has brought until then.
    this.#heardMs = source.heardMs();
    // Those that come meanwhile may be of the batch under way, and wait for the next one.
    const renewals = [...this.#renewals];
    const root = queueRoot(prefix, queue);
    for (let from = 0; from < renewals.length; from += RENEWALS_AT_ONCE) {
      const slice = renewals.slice(from, from + RENEWALS_AT_ONCE);
      const jobs = slice.map(([id, key]) => ({
        keyId: id,
        data: JSON.stringify(jobData(key, this.copyOf(key))),
      }));
      await replaceData.run(link.redis, { root }, { renewals: JSON.stringify(jobs) });
      for (const [id, key] of slice) if (this.#renewals.get(id) === key) this.#renewals.delete(id);
    }
  }

  /** The copy for the job of a claim, while the watch lives. */
  copyOf({ uid, claim }: KeyToQueue): ClaimCopy | undefined {
    const { source, prefix, driver } = this.#options;
    const heardMs = source.heardMs();
    if (claim === undefined || heardMs === undefined) return undefined;
    if (performance.now() - heardMs > MAX_SILENCE_MS) return undefined;
    const watch = this.#watch;
    return { watch, claim, seal: source.seal(sealedCopy({ prefix, driver, uid, watch, claim })) };
  }

  /** Tells workers that the watch lives. Never rejects: without it they read each claim. */
  async tellLife(): Promise<void> {
    const nowMs = performance.now();
    const heardMs = this.#heardMs;
    if (heardMs === undefined || heardMs === this.#life.heardMs) return;
    if (nowMs - this.#life.writtenMs < LIFE_PAUSE_MS) return;
    this.#life = { writtenMs: nowMs, heardMs };
    await this.#lifeWriter
      .write(this.#watch, heardMs)
      .catch((error: unknown) =>
        this.#options.log.debug(
          { err: error },
          'could not tell that the watch lives; trying again',
        ),
      );
  }

  close(): void {
    clearInterval(this.#lifeTimer);
  }

  async #tellLifeWhenIdle(): Promise<void> {
    const { isBusy, link, source } = this.#options;
    if (isBusy() || link.trouble !== undefined) return;
    this.#heardMs = source.heardMs();
    await this.tellLife();
  }
}

function newName(): string {
  return randomBytes(6).toString('base64url');
}
