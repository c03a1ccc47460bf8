import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import type { Outcome } from '#src/queue/outcome.ts';
import { claimKey, QueueBench, sleep, until } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

const KEYS = Array.from({ length: 200 }, (_, i) => claimKey(`c${i}`));
const done: Outcome = { kind: 'done' };
const down: Outcome = { kind: 'later', reason: 'the driver is not connected', isDriverDown: true };

describe('a queue whose driver is down', () => {
  let redis: TestRedis;
  let bench: QueueBench;
  let driver = 'g0.example';
  let serial = 0;
  const part = (name: string): string => `{csi}:claims.${driver}:${name}`;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(() => {
    serial += 1;
    driver = `g${serial}.example`;
    bench = new QueueBench(redis, driver);
  });
  afterEach(() => bench.close());

  it('pauses but for one run at a time, says so, and goes on as soon as that one gets through', async () => {
    let isDown = true;
    const consumer = bench.consumer(
      async () => {
        await sleep(5);
        return isDown ? down : done;
      },
      { trialPause: { startMs: 20, maxMs: 100 } },
    );
    const producer = bench.producer();
    for (const key of KEYS) producer.ensureQueued(key);
    await until(() => consumer.trouble !== undefined && bench.runs.length > 0, 'it is told');
    assert.match(consumer.trouble ?? '', /^the driver can't be reached.*not connected/);
    assert.equal(await bench.metric('sutler_queue_driver_down', { driver }), 1);
    await sleep(300);
    const before = bench.runs.length;
    await sleep(1000);
    const tries = bench.runs.length - before;
    assert.ok(
      tries >= 5 && tries <= 11,
      `${tries} tries in a second with pauses of 100 ms, ${KEYS.length} keys waiting`,
    );
    const ends = bench.runs
      .slice(before)
      .map(({ atMs, endMs }) => ({ atMs, endMs: endMs ?? Infinity }));
    assert.ok(
      ends.every(({ atMs }, i) => i === 0 || atMs >= (ends[i - 1]?.endMs ?? 0)),
      'one at a time',
    );
    assert.ok(
      (await redis.redis.zcard(part('prioritized'))) > 150,
      'the others wait where they were',
    );
    isDown = false;
    const backMs = Date.now();
    await until(
      async () => (await redis.redis.zcard(part('completed'))) === KEYS.length,
      'all are done',
    );
    assert.ok(Date.now() - backMs < 2500, `took ${Date.now() - backMs} ms`);
    assert.equal(consumer.trouble, undefined);
    assert.equal(await bench.metric('sutler_queue_driver_down', { driver }), 0);
    assert.deepEqual(bench.doubles, []);
    assert.ok(
      bench.runs.every(({ run }) => run.attempt === 0),
      'nobody was charged a failure',
    );
  });

  it('takes a canary that is still under way for one that got through', async () => {
    let isDown = true;
    let running = 0;
    let most = 0;
    const consumer = bench.consumer(
      async () => {
        if (isDown) return down;
        running += 1;
        most = Math.max(most, running);
        await sleep(10_000);
        running -= 1;
        return done;
      },
      { trialPause: { startMs: 20, maxMs: 50 }, concurrency: 4 },
    );
    const producer = bench.producer();
    for (const key of KEYS.slice(0, 20)) producer.ensureQueued(key);
    await until(() => consumer.trouble !== undefined && bench.runs.length > 8, 'canaries fail');
    isDown = false;
    await until(() => running === 4, 'all places are taken although no run has ended', 30_000);
    assert.equal(most, 4);
  });

  it('can be closed while it pauses', async () => {
    const consumer = bench.consumer(() => down, { trialPause: { startMs: 60_000, maxMs: 60_000 } });
    bench.producer().ensureQueued(claimKey('a'));
    await until(() => consumer.trouble !== undefined, 'it is told');
    const startedMs = Date.now();
    await consumer.close(5000);
    assert.ok(Date.now() - startedMs < 1000);
  });
});

describe('a worker that takes nothing', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());

  it('counts as stuck while work waits and it has room, and as well when it takes jobs again', async () => {
    await redis.redis.call('ACL', 'SETUSER', 'worker', 'on', '>geheim', '~*', '&*', '+@all');
    const url = new URL(redis.url);
    url.username = 'worker';
    url.password = 'geheim';
    const bench = new QueueBench(redis, 'stuck.example');
    const consumer = bench.consumer(() => done, { redisUrl: url.href, progressMs: 600 });
    const producer = bench.producer();
    producer.ensureQueued(claimKey('before'));
    await until(() => bench.runs.length === 1, 'it works');
    // Its connection stands and every look at the queue is answered; only the fetch fails.
    await redis.redis.call('ACL', 'SETUSER', 'worker', '-zpopmin');
    await sleep(900);
    assert.equal(consumer.stuck, undefined, 'nothing waits, so nothing is wrong');
    producer.ensureQueued(claimKey('after'));
    await until(() => consumer.stuck !== undefined, 'it is told', 30_000);
    assert.match(consumer.stuck ?? '', /taken nothing for \d+ s although 1 jobs wait/);
    await redis.redis.call('ACL', 'SETUSER', 'worker', '+zpopmin');
    await until(() => bench.runs.length === 2 && consumer.stuck === undefined, 'it works again');
    await bench.close();
  });

  it('does not count as stuck while it is paused, while it is full, nor while its driver is down', async () => {
    const outcomes: Readonly<Record<string, () => Promise<Outcome>>> = {
      paused: () => Promise.resolve(done),
      full: () => sleep(1500).then(() => done),
      down: () => Promise.resolve(down),
    };
    for (const [name, process] of Object.entries(outcomes)) {
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
      await producer.flushed();
      await sleep(1000);
      assert.equal(consumer.stuck, undefined, name);
      await bench.close();
    }
  });
});
