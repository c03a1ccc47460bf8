import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { QueueBench, sleep, volumeKey } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

describe('queue under faults', () => {
  let redis: TestRedis;
  let bench: QueueBench;
  const driver = 'd.example';

  before(async () => {
    redis = await startTestRedis();
    bench = new QueueBench(redis, driver, 'volume');
  });
  after(async () => {
    await bench.close();
    await redis.close();
  });

  it('loses no volume and runs none twice at a time when Redis freezes for long', async () => {
    const keys = Array.from({ length: 10 }, (_, i) => volumeKey(`c${i}`));
    const producer = bench.producer();
    const released = new AbortController();
    const runUntilReleased = async (): Promise<Outcome> => {
      while (!released.signal.aborted) await sleep(5);
      return { kind: 'done' };
    };
    // It has room, so that BullMQ gives it the same jobs again while their runs go on. A flag can
    // give periods that are no whole milliseconds.
    const periods = { lockMs: 1_000.5, stalledCheckMs: 1_000 / 3 };
    bench.consumer(runUntilReleased, { concurrency: 50, ...periods });
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
});
