import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { LeaderOnlyQueue } from '#src/ingest/leader-only-queue.ts';
import { Resync } from '#src/ingest/resync.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { claimKey, QueueBench } from '../../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../../harness/redis.ts';
import { until } from '../../harness/until.ts';

const DRIVER = 'd.example';
const DELAYED = `${queueRoot('csi', queueName('claim', DRIVER))}delayed`;

describe('a resync', () => {
  let redis: TestRedis;
  let bench: QueueBench;
  before(async () => {
    redis = await startTestRedis();
    bench = new QueueBench(redis, DRIVER);
  });
  after(async () => {
    await bench.close();
    await redis.close();
  });

  it('leaves jobs that back off where they are, and enqueues what has none', async () => {
    const failing = ['a', 'b', 'c'].map((name) => claimKey(name));
    const lost = claimKey('lost');
    const producer = bench.producer();
    bench.consumer(({ name }) => (name === 'lost' ? { kind: 'done' } : FAILED), {
      backoff: { startMs: 600_000, maxMs: 600_000 },
    });
    const queue = new LeaderOnlyQueue(producer, 0);
    queue.allow(() => true);
    for (const key of failing) queue.ensureQueued(key);
    const isBackingOff = async () => (await redis.redis.zcard(DELAYED)) === failing.length;
    await until(isBackingOff, 'all jobs are delayed');
    const dueTimes = await redis.redis.zrange(DELAYED, 0, '-1', 'WITHSCORES');
    const resync = new Resync({
      outstanding: () => eachOf([...failing, lost]),
      entries: () => [],
      queue,
      clock: systemClock,
      log: silentLog,
    });
    for (let i = 0; i < 5; i += 1) await resync.run('test');
    await until(() => bench.runsOf(lost).length > 0, 'the key without a job runs');
    assert.deepEqual(await redis.redis.zrange(DELAYED, 0, '-1', 'WITHSCORES'), dueTimes);
    for (const key of failing) assert.equal(bench.runsOf(key).length, 1, key.name);
  });
});

const FAILED = { kind: 'retry', reason: 'the driver is full' } as const;

async function* eachOf(keys: readonly JobKey[]): AsyncGenerator<JobKey> {
  await Promise.resolve();
  yield* keys;
}
