import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { JobKey } from '#src/queue/contract.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { claimKey, QueueBench, sleep, snapshotKey, type TestProducer } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const done: Outcome = { kind: 'done' };

describe('queue under faults', () => {
  let redis: TestRedis;
  let bench: QueueBench;
  let driver = 'd0.example';
  let serial = 0;
  const completed = (): Promise<number> =>
    redis.redis.zcard(`${queueRoot('csi', queueName('snapshot', driver))}completed`);

  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(() => {
    serial += 1;
    driver = `d${serial}.example`;
    bench = new QueueBench(redis, driver);
  });
  afterEach(() => bench.close());

  it('loses no snapshot and runs none twice at a time when Redis is killed and restarted', async () => {
    bench = new QueueBench(redis, driver, 'snapshot');
    const keys = Array.from({ length: 10 }, (_, i) => snapshotKey(`c${i}`));
    const producer = bench.producer();
    const released = new AbortController();
    const runUntilReleased = async (): Promise<Outcome> => {
      while (!released.signal.aborted) await sleep(5);
      return done;
    };
    // It has room, so that BullMQ gives it the same jobs again while their runs go on.
    bench.consumer(runUntilReleased, { concurrency: 50 });
    for (const key of keys) producer.ensureQueued(key);
    await until(() => bench.runs.length >= 10, 'all run');
    await redis.kill();
    producer.ensureQueued(snapshotKey('during'));
    // Longer than the locks, of one second: all have expired when Redis runs again.
    await sleep(1300);
    assert.ok(
      bench.runs.every(({ run }) => run.signal.aborted),
      'no run may start a call any more',
    );
    await redis.start();
    await until(
      async () => (await bench.metric('sutler_queue_jobs_stalled_total', { driver })) >= 10,
      'the jobs are taken again',
    );
    await until(
      () => bench.runsOf(snapshotKey('during')).length === 1,
      'the key that was enqueued without Redis runs',
    );
    released.abort();
    await until(async () => (await completed()) >= 11, 'all complete');
    assert.deepEqual(bench.doubles, []);
    assert.ok((await bench.metric('sutler_queue_locks_lost_total', { driver })) >= 10);
  });

  it('aborts runs when Redis restarted empty, and runs the keys that are added again', async () => {
    const keys = Array.from({ length: 20 }, (_, i) => claimKey(`c${i}`));
    const producer = bench.producer();
    let emptied = 0;
    const consumer = bench.consumer(
      async (_, { signal }) => {
        if (bench.runs.length > 20) return done;
        while (!signal.aborted) await sleep(5);
        return { kind: 'later', reason: 'aborted' };
      },
      { lockMs: 20_000, onRedisEmptied: () => (emptied += 1) },
    );
    const addKeys = (): void => keys.forEach((key) => producer.ensureQueued(key));
    addKeys();
    await until(() => bench.runs.length >= 20, 'all run');
    await until(
      async () => (await redis.redis.exists('{csi}:marker')) === 1,
      'the flush marker is set',
    );
    await sleep(1100);
    await redis.kill();
    await redis.startEmpty();
    await until(() => emptied === 1, 'the consumer notices it');
    addKeys();
    await until(() => keys.every((key) => bench.runsOf(key).length >= 2), 'all run again');
    assert.deepEqual(bench.doubles, []);
    assert.equal(consumer.trouble, undefined);
  });

  it('runs every key when Redis is flushed under load', async () => {
    const seen = new Set<string>();
    const outstanding = new Map<string, JobKey>();
    const producer = bench.producer();
    const addAgain = (): void => outstanding.forEach((key) => producer.ensureQueued(key));
    const work = async ({ uid }: JobKey): Promise<Outcome> => {
      await sleep(5);
      seen.add(uid);
      outstanding.delete(uid);
      return done;
    };
    bench.consumer(work);
    bench.consumer(work, { onRedisEmptied: addAgain });
    await until(
      async () => (await redis.redis.exists('{csi}:marker')) === 1,
      'the flush marker is set',
    );
    for (let i = 0; i < 600; i += 1) {
      const key = claimKey(`c${i}`);
      outstanding.set(key.uid, key);
      producer.ensureQueued(key);
      if (i % 20 === 0) await sleep(5);
      if (i === 300) await redis.redis.flushall();
    }
    await until(() => seen.size === 600, 'every key ran');
    assert.equal(outstanding.size, 0);
  });

  /** Kills a process while it runs the job of the key `data`. */
  async function killWorker(onRunning?: (producer: TestProducer) => void): Promise<void> {
    const script = fileURLToPath(new URL('worker-process.js', import.meta.url));
    const child = spawn(process.execPath, [script, redis.url, driver], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const producer = bench.producer();
    producer.ensureQueued(claimKey('data'));
    await once(child.stdout, 'data');
    onRunning?.(producer);
    await producer.waitUntilFlushed();
    child.kill('SIGKILL');
    await once(child, 'exit');
  }

  it('takes over the job of a killed process, and runs it again for a later request', async () => {
    bench.readsFailures = true;
    await killWorker((producer) => producer.ensureQueued(claimKey('data')));
    bench.consumer(() => done);
    await until(
      () => bench.runs.length >= 2,
      'it is taken over, and run once more for the request',
    );
    assert.equal(bench.runs[0]?.failures, 0);
    assert.equal(await bench.metric('sutler_queue_jobs_stalled_total', { driver }), 1);
  });

  it('takes over a job also where its periods are no whole milliseconds', async () => {
    await killWorker();
    bench.consumer(() => done, { lockMs: 1000.5, stalledCheckMs: 1000 / 3 });
    await until(() => bench.runs.length >= 1, 'it is taken over');
  });

  it('runs no key twice at a time, and each after its last request, while runs fail', async () => {
    const producer = bench.producer();
    const requested = new Map<string, number>();
    const observed = new Map<string, number>();
    let runs = 0;
    const work = async ({ uid }: JobKey): Promise<Outcome> => {
      const version = requested.get(uid) ?? 0;
      await sleep(Math.random() * 6);
      runs += 1;
      if (runs % 3 === 0) return { kind: 'retry', reason: 'no luck' };
      observed.set(uid, version);
      return done;
    };
    const backoff = { startMs: 5, maxMs: 40 };
    bench.consumer(work, { backoff });
    bench.consumer(work, { backoff });
    for (let i = 0; i < 3000; i += 1) {
      const key = claimKey(`c${i % 40}`, `ns${i % 7}`);
      requested.set(key.uid, i);
      if (i % 5 === 0) producer.enqueueNow(key);
      else producer.ensureQueued(key);
      if (i % 15 === 0) await sleep(3);
    }
    await until(
      () => [...requested].every(([uid, version]) => observed.get(uid) === version),
      'the last request of each key was seen',
    );
    assert.deepEqual(bench.doubles, []);
  });
});
