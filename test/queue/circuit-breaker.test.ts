import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { CircuitBreaker } from '#src/queue/circuit-breaker.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { silentLog } from '#src/runtime/log.ts';
import { claimKey, QueueBench, sleep } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const KEYS = Array.from({ length: 200 }, (_, i) => claimKey(`c${i}`));
const done: Outcome = { kind: 'done' };
const down: Outcome = { kind: 'later', reason: 'the driver is not connected', isDriverDown: true };

describe('a queue whose driver is down', () => {
  let redis: TestRedis;
  let bench: QueueBench;
  let driver = 'g0.example';
  let serial = 0;
  const part = (name: string): string => queueRoot('csi', queueName('claim', driver)) + name;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(() => {
    serial += 1;
    driver = `g${serial}.example`;
    bench = new QueueBench(redis, driver);
    bench.readsFailures = true;
  });
  afterEach(() => bench.close());

  const isEmpty = async (): Promise<boolean> =>
    (await redis.redis.exists(...['prioritized', 'delayed', 'active'].map(part))) === 0;

  it('makes one trial run at a time, and resumes when one reaches the driver', async () => {
    let isDown = true;
    const consumer = bench.consumer(
      async (_, run) => {
        await sleep(5);
        if (!isDown) run.reachedDriver();
        return isDown ? down : done;
      },
      { trialPause: { startMs: 20, maxMs: 100 } },
    );
    const producer = bench.producer();
    for (const key of KEYS) producer.ensureQueued(key);
    await until(
      () => consumer.driverTrouble !== undefined && bench.runs.length > 0,
      'the trouble is reported',
    );
    assert.match(consumer.driverTrouble ?? '', /^the driver can't be reached.*not connected/);
    assert.equal(await bench.metric('sutler_queue_driver_down', { driver }), 1);
    await sleep(300);
    const before = bench.runs.length;
    await sleep(500);
    const trials = bench.runs.length - before;
    assert.ok(
      trials >= 2 && trials <= 6,
      `${trials} trial runs in half a second with pauses of 100 ms, ${KEYS.length} keys waiting`,
    );
    const ends = bench.runs
      .slice(before)
      .map(({ atMs, endMs }) => ({ atMs, endMs: endMs ?? Infinity }));
    assert.ok(
      ends.every(({ atMs }, i) => i === 0 || atMs >= (ends[i - 1]?.endMs ?? 0)),
      'one at a time',
    );
    assert.ok((await redis.redis.zcard(part('prioritized'))) > 150, 'the other keys still wait');
    isDown = false;
    const backMs = Date.now();
    await until(isEmpty, 'all are done');
    assert.ok(Date.now() - backMs < 2500, `took ${Date.now() - backMs} ms`);
    assert.equal(consumer.driverTrouble, undefined);
    assert.equal(await bench.metric('sutler_queue_driver_down', { driver }), 0);
    assert.deepEqual(bench.doubles, []);
    assert.ok(
      bench.runs.every(({ failures }) => failures === 0),
      'no failure was counted',
    );
  });

  it('takes no run that did not call the driver for one that reached it', async () => {
    let outcome: Outcome = down;
    const consumer = bench.consumer(() => outcome, { trialPause: { startMs: 20, maxMs: 50 } });
    const producer = bench.producer();
    for (const key of KEYS.slice(0, 20)) producer.ensureQueued(key);
    await until(
      () => consumer.driverTrouble !== undefined && bench.runs.length > 8,
      'trial runs fail',
    );
    outcome = done;
    await until(isEmpty, 'all keys are done without a call');
    assert.match(consumer.driverTrouble ?? '', /not connected/);
  });

  it('can be closed while the breaker is open', async () => {
    const consumer = bench.consumer(() => down, { trialPause: { startMs: 60_000, maxMs: 60_000 } });
    bench.producer().ensureQueued(claimKey('a'));
    await until(() => consumer.driverTrouble !== undefined, 'the trouble is reported');
    const startedMs = Date.now();
    await consumer.close(5000);
    assert.ok(Date.now() - startedMs < 1000);
  });
});

describe('CircuitBreaker', () => {
  const full: Outcome = { kind: 'later', reason: 'the gateway is full', isGatewayFull: true };
  let breaker: CircuitBreaker;
  beforeEach(() => {
    breaker = new CircuitBreaker({
      concurrency: 4,
      pause: { startMs: 10, maxMs: 10 },
      trialPassesAfterMs: 50,
      knownMs: 600,
      log: silentLog,
    });
  });
  afterEach(() => breaker.stop());
  const open = async (): Promise<void> => {
    breaker.begin().end(down);
    assert.ok(breaker.isOpen);
    await until(() => !breaker.isOpen, 'a trial run may begin');
    assert.equal(breaker.limit, 1);
  };

  it('is not said to be down any more when no run has called it for a while', async () => {
    await open();
    await sleep(350);
    await open();
    await sleep(350);
    assert.match(breaker.trouble ?? '', /not connected/, 'the second run has called it since');
    breaker.begin().end(done);
    await until(() => breaker.trouble === undefined, 'the trouble is forgotten', 5_000);
    assert.equal(breaker.trouble, undefined);
  });

  it('allows more runs while a trial run is under way', async () => {
    await open();
    for (const limit of [2, 4]) {
      breaker.begin();
      await until(() => breaker.limit === limit, `${limit} runs are allowed although none ended`);
    }
    assert.match(breaker.trouble ?? '', /not connected/, 'none has reached the driver');
  });

  it('takes a full gateway for a driver that can be reached', async () => {
    await open();
    breaker.begin().end(full);
    assert.deepEqual([breaker.trouble, breaker.limit], [undefined, 2]);
    breaker.begin().end(full);
    assert.ok(breaker.isClosed);
  });
});
