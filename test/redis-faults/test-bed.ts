import { type DataEpoch, DataEpochCheck } from '#src/ingest/data-epoch-check.ts';
import { LeaderOnlyQueue } from '#src/ingest/leader-only-queue.ts';
import { Leadership } from '#src/ingest/leadership.ts';
import { Resync } from '#src/ingest/resync.ts';
import { runToOutcome } from '#src/jobs/consumers.ts';
import { openRedis, type RedisLink } from '#src/redis/connection.ts';
import type { Consumer } from '#src/queue/consumer.ts';
import type { Run } from '#src/queue/run.ts';
import type { JobKey } from '#src/queue/contract.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import type { Producer } from '#src/queue/producer.ts';
import { type SettingsWatch, watchSettings } from '#src/redis/settings.ts';
import { redisDataEpochStore } from '#src/records/data-epoch.ts';
import { openJobs } from '#src/records/open-records.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { Closers } from '#src/runtime/closers.ts';
import { createLogger, type Logger, silentLog } from '#src/runtime/log.ts';
import { plannedRequest } from '../harness/planned-request.ts';
import { claimKey, QueueBench, sleep } from '../harness/queue.ts';
import type { TestRedis } from '../harness/redis.ts';

const OWN_MS = 1_500;

/** A producer, two workers, volume records and the leader's data epoch check, with a driver and an
 * API server in memory. */
export class TestBed {
  readonly producer: Producer;
  readonly consumers: readonly Consumer[];
  readonly settings: SettingsWatch;
  readonly bench: QueueBench;
  readonly log: string[] = [];
  /** Number of calls for each UID. */
  readonly calls = new Map<string, number>();
  /** UIDs that had two calls at once. */
  readonly doubleCalls: string[] = [];
  readonly keys: JobKey[] = [];
  /** UIDs whose PV is written. */
  readonly volumes = new Set<string>();
  readonly #records: VolumeRecords;
  readonly #calling = new Set<string>();
  readonly #closers = new Closers();
  #owners = 0;

  constructor(redis: Pick<TestRedis, 'url'>, driver: string) {
    const log = createLogger({
      name: 'test',
      verbosity: 0,
      format: 'text',
      write: (line) => void this.log.push(line),
    });
    const url = { redisUrl: redis.url };
    this.bench = new QueueBench(redis as TestRedis, driver);
    const link = openRedis({ url: redis.url, role: 'plain', log });
    this.settings = watchSettings(link, log);
    this.#records = new VolumeRecords({
      redis: link.redis,
      prefix: 'csi',
      driver,
      ownMs: OWN_MS,
      settleMs: 1000,
    });
    this.producer = this.bench.producer({ ...url, log });
    const leader = this.#startLeader(link, driver, log);
    const rewriteLost = (): void => void this.#records.rewriteLostRecords().catch(() => undefined);
    const rewriting = setInterval(rewriteLost, 500);
    const process = (key: JobKey, run: Run): Promise<Outcome> =>
      runToOutcome(key, silentLog, () => this.#reconcile(key, run));
    const options = {
      ...url,
      log,
      lockMs: 1500,
      onRedisEmptied: rewriteLost,
      backoff: { startMs: 20, maxMs: 1000 },
    };
    this.consumers = [this.bench.consumer(process, options), this.bench.consumer(process, options)];
    this.#closers.add('connection', () => link.close());
    this.#closers.add('timers', () => {
      clearInterval(leader);
      clearInterval(rewriting);
      this.settings.close();
    });
    this.#closers.add('bench', () => this.bench.close());
  }

  /** Does what the leading ingest does for Redis.
   * @returns the timer of its checks */
  #startLeader(link: RedisLink, driver: string, log: Logger): NodeJS.Timeout {
    const lease = { isLeader: true, holder: undefined, transitions: 0 };
    const queue = new LeaderOnlyQueue(this.producer, OWN_MS);
    const resync = new Resync({
      objects: {
        outstanding: () => this.#unserved(),
        reportRefused: () => undefined,
      },
      queue,
      openJobs: () => openJobs(link.redis, 'csi', driver),
      quarantineMs: OWN_MS,
      spreadMs: 200,
      clock: systemClock,
      log,
    });
    this.#closers.add('resync', () => resync.stop());
    let leaseDataEpoch: DataEpoch | undefined;
    const leadership = new Leadership({
      driver,
      queue,
      resync,
      dataEpoch: new DataEpochCheck({
        dataEpochs: redisDataEpochStore(link.redis, 'csi', driver),
        store: {
          read: () => Promise.resolve(leaseDataEpoch),
          write: (next) => {
            leaseDataEpoch = { id: next, sequence: 0, server: '' };
            return Promise.resolve();
          },
        },
        quarantineMs: OWN_MS,
        log,
      }),
      pause: { forget: () => undefined },
      otherProvisioner: { observe: () => undefined },
      failover: { checkNow: () => undefined },
      sweep: undefined,
      isRedisOurs: () => true,
      log,
    });
    leadership.begin(lease);
    link.onReady(() => leadership.reconnected());
    return setInterval(() => leadership.tick(lease), 100);
  }

  /** Adds claims, one after the other. */
  async addClaims(count: number, everyMs: number): Promise<void> {
    for (let i = 0; i < count; i += 1) {
      const key = claimKey(`c${this.keys.length}`, `ns${i % 3}`);
      this.keys.push(key);
      this.producer.ensureQueued(key);
      await sleep(everyMs);
    }
  }

  get isDone(): boolean {
    return this.keys.every(({ uid }) => this.volumes.has(uid));
  }

  // oxlint-disable-next-line typescript/require-await -- the keys are in memory here
  async *#unserved(): AsyncGenerator<JobKey> {
    yield* this.keys.filter(({ uid }) => !this.volumes.has(uid));
  }

  /** What /readyz of ingest and jobs would report. */
  get troubles(): string {
    return [this.producer, ...this.consumers, this.settings]
      .map(({ trouble }) => trouble ?? '')
      .join(' | ');
  }

  async close(): Promise<void> {
    await this.#closers.close();
  }

  /** The steps of jobs/claim/reconcile-claim.ts: read, open, call, write, close. */
  async #reconcile(job: JobKey, { signal }: Run): Promise<Outcome> {
    if (signal.aborted) return { kind: 'later', reason: 'stopping' };
    const { uid } = job;
    const owner = `o${(this.#owners += 1)}`;
    const planned = plannedRequest();
    const opened = await this.#records.openCreate(uid, { owner, job, planned, mode: 'plan' });
    if (opened.kind === 'closed') return { kind: 'done' };
    if (opened.kind === 'not-yet')
      return { kind: 'later', reason: opened.reason, delayMs: opened.waitMs };
    if (opened.kind === 'busy') return { kind: 'running', reason: 'busy' };
    if (opened.kind !== 'opened' && opened.kind !== 'replay')
      return { kind: 'later', reason: opened.kind };
    if (this.volumes.has(uid)) {
      await this.#records.closeStored(uid, owner);
      return { kind: 'done' };
    }
    if (signal.aborted) {
      await this.#records.revert(uid, owner);
      return { kind: 'later', reason: 'stopping' };
    }
    await this.#call(uid);
    this.volumes.add(uid);
    await this.#records.closeStored(uid, owner);
    return { kind: 'done' };
  }

  async #call(uid: string): Promise<void> {
    if (this.#calling.has(uid)) this.doubleCalls.push(uid);
    this.#calling.add(uid);
    this.calls.set(uid, (this.calls.get(uid) ?? 0) + 1);
    await sleep(60);
    this.#calling.delete(uid);
  }
}
