import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Outcome } from '#src/queue/outcome.ts';
import { claimKey, QueueBench, sleep } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const done: Outcome = { kind: 'done' };
const down: Outcome = { kind: 'later', reason: 'the driver is not connected', isDriverDown: true };

describe('a worker that takes nothing', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());

  it('is stuck while jobs wait and it has room, until it takes jobs again', async () => {
    await redis.redis.call('ACL', 'SETUSER', 'worker', 'on', '>geheim', '~*', '&*', '+@all');
    const url = new URL(redis.url);
    url.username = 'worker';
    url.password = 'geheim';
    const bench = new QueueBench(redis, 'stuck.example');
    const consumer = bench.consumer(() => done, { redisUrl: url.href, progressMs: 600 });
    const producer = bench.producer();
    producer.ensureQueued(claimKey('before'));
    await until(() => bench.runs.length === 1, 'it works');
    // Its other commands are answered; only the command that takes a job is refused.
    await redis.redis.call('ACL', 'SETUSER', 'worker', '-zpopmin');
    await sleep(900);
    assert.equal(consumer.stuck, undefined, 'no job waits');
    producer.ensureQueued(claimKey('after'));
    await until(() => consumer.stuck !== undefined, 'the worker is reported', 30_000);
    assert.match(consumer.stuck ?? '', /taken nothing for \d+ s although 1 jobs wait/);
    await redis.redis.call('ACL', 'SETUSER', 'worker', '+zpopmin');
    await until(
      () => bench.runs.length === 2 && consumer.stuck === undefined,
      'it takes jobs again',
    );
    await bench.close();
  });

  it('is not stuck while it is paused, full, or without its driver', async () => {
    const outcomes: readonly (readonly [name: string, () => Promise<Outcome>])[] = [
      ['paused', () => Promise.resolve(done)],
      ['full', () => sleep(1500).then(() => done)],
      ['down', () => Promise.resolve(down)],
    ];
    const run = async ([name, process]: (typeof outcomes)[number]): Promise<void> => {
      const bench = new QueueBench(redis, `${name}.example`);
      const consumer = bench.consumer(process, {
        progressMs: 300,
        concurrency: 1,
        trialPause: { startMs: 5000, maxMs: 5000 },
      });
      if (name === 'paused') await consumer.pause();
      const producer = bench.producer();
      producer.ensureQueued(claimKey('a'));
      producer.ensureQueued(claimKey('b'));
      await producer.waitUntilFlushed();
      await sleep(1000);
      assert.equal(consumer.stuck, undefined, name);
      await bench.close();
    };
    await Promise.all(outcomes.map(run));
  });
});
