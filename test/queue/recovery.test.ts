import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { claimKey, QueueBench, sleep, volumeKey } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const done: Outcome = { kind: 'done' };

describe('queue under faults', () => {
  let redis: TestRedis;
  let bench: QueueBench;
  let driver = 'd0.example';
  let serial = 0;

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

  it('loses no volume and runs none twice at a time when Redis freezes for long', async () => {
    bench = new QueueBench(redis, driver, 'volume');
    const keys = Array.from({ length: 10 }, (_, i) => volumeKey(`c${i}`));
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
    redis.freeze();
    producer.ensureQueued(volumeKey('during'));
    // Longer than the locks, of one second: all have expired when Redis goes on.
    await sleep(1300);
    redis.thaw();
    await until(
      async () => (await bench.metric('sutler_queue_jobs_stalled_total', { driver })) >= 10,
      'the jobs are taken again',
    );
    await until(
      () => bench.runsOf(volumeKey('during')).length > 0,
      'the key that was enqueued meanwhile runs',
    );
    released.abort();
    const left = `${queueRoot('csi', queueName('volume', driver))}*-*`;
    await until(async () => (await redis.redis.keys(left)).length === 0, 'no job is left');
    assert.deepEqual(bench.doubles, []);
    await until(
      async () => (await bench.metric('sutler_queue_locks_lost_total', { driver })) >= 10,
      'the lost locks are counted',
    );
  });

  it('takes over the job of a killed process, and runs it again for a later request', async () => {
    bench.readsFailures = true;
    const script = fileURLToPath(new URL('worker-process.js', import.meta.url));
    const child = spawn(process.execPath, [script, redis.url, driver], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const producer = bench.producer();
    producer.ensureQueued(claimKey('data'));
    await once(child.stdout, 'data');
    producer.ensureQueued(claimKey('data'));
    await producer.waitUntilFlushed();
    child.kill('SIGKILL');
    await once(child, 'exit');
    // A flag can give periods that are no whole milliseconds.
    bench.consumer(() => done, { lockMs: 10_000.5, stalledCheckMs: 1000 / 3 });
    await until(
      () => bench.runs.length >= 2,
      'it is taken over, and run once more for the request',
    );
    assert.equal(bench.runs[0]?.failures, 0);
    assert.equal(await bench.metric('sutler_queue_jobs_stalled_total', { driver }), 1);
  });
});
