import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { type Job, type JobsOptions, Queue, type QueueOptions, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import {
  DELAYED_SCORE_PER_MS,
  LAST_PRIORITY,
  MAX_EVENTS_FIELD,
  metaKey,
  QUEUE_LUA,
  queueRoot,
  SCORE_PER_PRIORITY,
} from '#src/queue/bullmq-layout.ts';
import { keyPrefix } from '#src/redis/key-names.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const KEY_ID = 'claim/u1';
const HOUR_MS = 3_600_000;

/* One test for each fact that src/queue/bullmq-layout.ts states. Jobs are made, run and read
 * through BullMQ's own API; what the layout says is read from Redis beside it. */
describe('BullMQ', () => {
  let test: TestRedis;
  let redis: Redis;
  let queue: Queue;
  let root = '';
  let serial = 0;
  let closers: (() => Promise<unknown>)[] = [];

  before(async () => {
    test = await startTestRedis();
    redis = test.redis;
  });
  after(() => test.close());
  beforeEach(() => {
    const name = `claims.d${(serial += 1)}.example`;
    root = queueRoot('csi', name);
    queue = openQueue();
  });
  afterEach(async () => {
    await Promise.all(closers.map((close) => close()));
    closers = [];
  });

  function openQueue(options: Partial<QueueOptions> = {}): Queue {
    const opened = new Queue(`claims.d${serial}.example`, {
      connection: { url: test.url },
      prefix: keyPrefix('csi'),
      ...options,
    });
    closers.push(() => opened.close());
    return opened;
  }

  /** Adds a job and returns its id. */
  async function add(options: JobsOptions = {}): Promise<string> {
    return (await queue.add('claim', {}, options)).id ?? '';
  }

  function work(run: (job: Job) => Promise<unknown>): void {
    const worker = new Worker(queue.name, run, {
      connection: { url: test.url },
      prefix: keyPrefix('csi'),
      concurrency: 10,
      settings: { backoffStrategy: () => HOUR_MS },
    });
    closers.push(() => worker.close(true));
  }

  /** Runs a job until `finish` is called. */
  function workUntilFinished(): () => void {
    let finish = (): void => undefined;
    const finished = new Promise<void>((resolve) => (finish = resolve));
    work(() => finished);
    return finish;
  }

  /** Evaluates an expression of the layout's functions, with the root in `KEYS[1]`. */
  const lua = (expression: string, ...args: (string | number)[]) =>
    redis.eval(`${QUEUE_LUA} return ${expression}`, 1, root, ...args);
  const isIn = async (state: string, id: string) => (await queue.getJobState(id)) === state;
  const isRunning = (id: string) => until(() => isIn('active', id), 'the job runs');

  it('keeps a job without a priority in the list `wait`', async () => {
    const id = await add();
    assert.deepEqual(await redis.lrange(`${root}wait`, 0, -1), [id]);
  });

  it('scores a job with a priority by priority * 2^32 + a counter, in `prioritized`', async () => {
    const ids = [await add({ priority: 7 }), await add({ priority: 7 })];
    const scores = await Promise.all(ids.map((id) => redis.zscore(`${root}prioritized`, id)));
    const [first = 0, second = 0] = scores.map(Number);
    assert.equal(Math.floor(first / SCORE_PER_PRIORITY), 7);
    assert.equal(second, first + 1);
    assert.equal(await lua('lowestPriority(KEYS[1])'), 7);
  });

  it('refuses a priority above the last one', async () => {
    await add({ priority: LAST_PRIORITY });
    await assert.rejects(add({ priority: LAST_PRIORITY + 1 }), /Priority/);
  });

  it('scores a delayed job by its due time * 4096 + a counter, in `delayed`', async () => {
    const id = await add({ delay: HOUR_MS });
    const { timestamp } = (await queue.getJob(id)) ?? { timestamp: 0 };
    const score = Number(await redis.zscore(`${root}delayed`, id));
    assert.equal(Math.floor(score / DELAYED_SCORE_PER_MS), timestamp + HOUR_MS);
  });

  it('keeps a job’s priority and delay in the fields of its hash', async () => {
    const id = await add({ priority: 7, delay: HOUR_MS });
    assert.deepEqual(await redis.hmget(root + id, 'priority', 'delay'), ['7', String(HOUR_MS)]);
  });

  it('counts the failures of a job in the field `atm` of its hash', async () => {
    work(() => Promise.reject(new Error('no')));
    const id = await add({ attempts: 3, backoff: { type: 'custom' } });
    await until(() => isIn('delayed', id), 'the job failed');
    assert.equal(await redis.hget(root + id, 'atm'), '1');
  });

  it('keeps a running job in the list `active`, and its lock', async () => {
    workUntilFinished();
    const id = await add();
    await isRunning(id);
    assert.equal(await redis.lpos(`${root}active`, id), 0);
    assert.equal(await lua('isActive(KEYS[1], ARGV[1]) and 1 or 0', id), 1);
    const other = await add({ delay: HOUR_MS });
    assert.equal(await lua('isActive(KEYS[1], ARGV[1]) and 1 or 0', other), 0);
    assert.equal(await redis.exists(`${root}${id}:lock`), 1);
    assert.equal(await redis.exists(`${root}${other}:lock`), 0);
  });

  it('locks a running job with `:lock`, and looks for dead workers unless `stalled-check` exists', async () => {
    workUntilFinished();
    const id = await add();
    await isRunning(id);
    const keys = [`${root}${id}:lock`, `${root}stalled-check`];
    await until(async () => (await redis.exists(...keys)) === 2, 'both exist');
    await lua('shortenExpiries(KEYS[1], tonumber(ARGV[1]))', HOUR_MS);
    await until(async () => (await redis.exists(...keys)) === 0, 'both have expired');
  });

  it('keeps the id of a deduplicated key’s job under `de:` until it is complete', async () => {
    const finish = workUntilFinished();
    const id = await add({ deduplication: { id: KEY_ID, keepLastIfActive: true } });
    assert.equal(await lua('jobOf(KEYS[1], ARGV[1])', KEY_ID), id);
    await isRunning(id);
    assert.equal(await lua('jobOf(KEYS[1], ARGV[1])', KEY_ID), id);
    finish();
    await until(() => isIn('completed', id), 'the job is complete');
    assert.equal(await lua('jobOf(KEYS[1], ARGV[1])', KEY_ID), null);
  });

  for (const isDropped of [false, true]) {
    const what = isDropped ? 'forgets it with that key' : 'makes a job of it afterwards';
    it(`keeps a hint that comes during a run under \`dn:\`, and ${what}`, async () => {
      const finish = workUntilFinished();
      const deduplication = { id: KEY_ID, keepLastIfActive: true };
      const id = await add({ deduplication });
      await isRunning(id);
      await add({ deduplication });
      assert.equal(await redis.exists(`${root}dn:${KEY_ID}`), 1);
      if (isDropped) await lua('dropNextHint(KEYS[1], ARGV[1])', KEY_ID);
      assert.equal(await redis.exists(`${root}dn:${KEY_ID}`), isDropped ? 0 : 1);
      finish();
      const expected = isDropped ? 1 : 2;
      await until(async () => (await queue.getCompletedCount()) === expected, 'jobs are complete');
      assert.deepEqual(await queue.getJobCounts('active', 'wait', 'delayed'), {
        active: 0,
        wait: 0,
        delayed: 0,
      });
    });
  }

  it('takes a promoted job at once, although its worker blocks on `marker`', async () => {
    let runs = 0;
    work(() => Promise.resolve((runs += 1)));
    const id = await add({ delay: HOUR_MS, priority: 3 });
    const blocked = async () => /blocked_clients:[1-9]/.test(await redis.info('clients'));
    await until(blocked, 'the worker blocks');
    const nowMs = Date.now();
    assert.equal(await lua('promote(KEYS[1], ARGV[1], ARGV[2]) and 1 or 0', id, nowMs), 1);
    await until(() => isIn('completed', id), 'the job is complete', 5_000);
    assert.equal(runs, 1);
    assert.equal(await lua('promote(KEYS[1], ARGV[1], ARGV[2]) and 1 or 0', id, nowMs), 0);
  });

  it('takes a job later by as much as its delay was extended', async () => {
    const startedMs = Date.now();
    let ranMs = 0;
    const id = await add({ delay: 300 });
    await lua('extendDelays(KEYS[1], tonumber(ARGV[1]))', 700);
    work(() => Promise.resolve((ranMs = Date.now())));
    await until(() => isIn('completed', id), 'the job is complete');
    assert.ok(ranMs - startedMs >= 1_000, `it ran after ${ranMs - startedMs} ms`);
  });

  it('orders jobs by their lowered priorities, delayed and active ones too', async () => {
    const finish = workUntilFinished();
    const active = await add({ priority: 10 });
    await isRunning(active);
    await queue.pause();
    const delayed = await add({ priority: 20, delay: HOUR_MS });
    const waiting = await add({ priority: 30 });
    await lua('lowerPriorities(KEYS[1], tonumber(ARGV[1]))', 9);
    const priorities = [active, delayed, waiting].map(
      async (id) => (await queue.getJob(id))?.priority,
    );
    assert.deepEqual(await Promise.all(priorities), [1, 11, 21]);
    await (await queue.getJob(delayed))?.promote();
    assert.deepEqual(await redis.zrange(`${root}prioritized`, 0, '-1'), [delayed, waiting]);
    assert.equal(await lua('lowestPriority(KEYS[1])'), 11);
    finish();
  });

  describe('counting the jobs that a worker could take', () => {
    const takeable = () => lua('countTakeable(KEYS[1], ARGV[1])', Date.now());
    beforeEach(async () => {
      await add();
      await add({ priority: 1 });
      await add({ delay: HOUR_MS });
    });

    it('finds those that wait and the delayed ones that are due', async () => {
      assert.equal(await takeable(), 2);
      const id = await add({ delay: 1 });
      await until(async () => (await takeable()) === 3, `job ${id} is due`);
    });

    it('finds none while `meta` says that the queue is paused', async () => {
      await queue.pause();
      assert.equal(await takeable(), 0);
      await queue.resume();
      assert.equal(await takeable(), 2);
    });

    it('finds none while as many are active as `meta` allows', async () => {
      const finish = workUntilFinished();
      await until(async () => (await queue.getActiveCount()) === 2, 'both run');
      await add();
      await until(async () => (await queue.getActiveCount()) === 3, 'all run');
      await queue.setGlobalConcurrency(3);
      await add();
      assert.equal(await takeable(), 0);
      await queue.setGlobalConcurrency(4);
      await until(async () => (await queue.getActiveCount()) === 4, 'one more runs');
      finish();
    });

    it('finds none while `limiter` exists', async () => {
      await queue.rateLimit(HOUR_MS);
      assert.equal(await takeable(), 0);
      await queue.removeRateLimitKey();
      assert.equal(await takeable(), 2);
    });
  });

  it('keeps in `meta` how many events it keeps', async () => {
    const field = () => redis.hget(metaKey('csi', queue.name), MAX_EVENTS_FIELD);
    await until(async () => (await field()) !== null, 'the default is there');
    const own = openQueue({ streams: { events: { maxLen: 77 } } });
    await own.waitUntilReady();
    await until(async () => (await field()) === '77', 'the number is there');
  });
});
