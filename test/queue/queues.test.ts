import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { workId } from '#src/queue/contract.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { promoteUnlessRunning, storeLimits, useQueue } from '#src/queue/queues.ts';
import { claimKey, QueueBench, sleep, type TestProducer } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

describe('the limits of a driver’s queues', () => {
  let redis: TestRedis;
  let bench: QueueBench;
  let producer: TestProducer;
  let place: { readonly prefix: string; readonly driver: string };
  let serial = 0;
  let running = 0;
  let most = 0;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(async () => {
    place = { prefix: 'csi', driver: `limits-${(serial += 1)}` };
    bench = new QueueBench(redis, place.driver);
    producer = bench.producer();
    running = 0;
    most = 0;
    // A leader that begins drops all that its queues have, limits too.
    const begun = `{csi}:jobs-history:${place.driver}`;
    await until(async () => (await redis.redis.exists(begun)) === 1, 'the leader has begun');
  });
  afterEach(() => bench.close());

  const store = (maxInFlight: number, maxPerSecond: number): Promise<void> =>
    storeLimits({ ...place, redis: redis.redis }, { maxInFlight, maxPerSecond });
  const startWorkers = (runMs: number): void => {
    const run = async (): Promise<Outcome> => {
      running += 1;
      most = Math.max(most, running);
      await sleep(runMs);
      running -= 1;
      return { kind: 'done' };
    };
    for (let i = 0; i < 2; i += 1) bench.consumer(run);
  };
  const enqueue = (keys: number): void => {
    for (let i = 0; i < keys; i += 1) producer.ensureQueued(claimKey(`c${i}`));
  };

  it('bound the runs of all workers together, until they end', async () => {
    await store(3, 0);
    startWorkers(100);
    enqueue(40);
    await until(() => bench.runs.length >= 6, 'some ran');
    assert.equal(most, 3);
    await store(0, 0);
    await until(() => running > 5, 'more run');
  });

  it('bound the runs of a second', async () => {
    await store(0, 4);
    startWorkers(1);
    enqueue(12);
    await until(() => bench.runs.length === 12, 'all ran', 20_000);
    const times = bench.runs.map(({ atMs }) => atMs).toSorted((a, b) => a - b);
    // Twelve runs take three windows, the first of which may have begun before the first run.
    assert.ok((times.at(-1) ?? 0) - (times[0] ?? 0) > 1_500, times.join());
  });
});

describe('the promotion of a key that its run is about to delay', () => {
  it('is asked for again where the run ends between the two looks at its job', async () => {
    const redis = await startTestRedis();
    const driver = 'between.example';
    const bench = new QueueBench(redis, driver);
    let endRun = (): void => undefined;
    const isToEnd = new Promise<void>((resolve) => (endRun = resolve));
    try {
      bench.consumer(async () => {
        await isToEnd;
        return { kind: 'parked', reason: 'nothing to do yet', until: [] };
      });
      const key = claimKey('data');
      bench.producer().ensureQueued(key);
      await until(() => bench.runs.length === 1, 'it runs');
      const place = { redis: redis.redis, prefix: 'csi', driver };
      await useQueue(place, 'claim', async (queue) => {
        const stateOf = queue.getJobState.bind(queue);
        queue.getJobState = async (id) => {
          endRun();
          await until(async () => (await queue.getDelayedCount()) === 1, 'it is delayed');
          return stateOf(id);
        };
        assert.equal(await promoteUnlessRunning(queue, workId(key)), 'running');
        assert.equal(await promoteUnlessRunning(queue, workId(key)), 'promoted');
      });
    } finally {
      await bench.close();
      await redis.close();
    }
  });
});
