import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { type JobKey, keyId } from '#src/queue/contract.ts';
import { DELAYED_SCORE_PER_MS, queueName, queueRoot } from '#src/queue/queue-keys.ts';
import { requeueLostJobs } from '#src/queue/lost-jobs.ts';
import { QueueBench, snapshotKey, type TestProducer } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const HOUR_MS = 3_600_000;

describe('a job that is in no list of its queue', () => {
  let redis: TestRedis;
  let bench: QueueBench;
  let producer: TestProducer;
  let driver = '';
  let serial = 0;
  const place = ({ kind }: JobKey) => ({ prefix: 'csi', queue: queueName(kind, driver) });
  const rootOf = ({ kind }: JobKey): string => queueRoot('csi', queueName(kind, driver));
  const jobOf = async (key: JobKey): Promise<string> =>
    (await redis.redis.get(`${rootOf(key)}de:${keyId(key)}`)) ?? '';
  const enqueue = async (...keys: readonly JobKey[]): Promise<void> => {
    for (const key of keys) producer.ensureQueued(key);
    await producer.waitUntilFlushed();
  };
  /** Due time of a delayed job, in Unix ms. */
  const dueMs = async (key: JobKey): Promise<number> =>
    Number(await redis.redis.zscore(`${rootOf(key)}delayed`, await jobOf(key))) /
    DELAYED_SCORE_PER_MS;

  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(() => {
    driver = `d${(serial += 1)}.example`;
    bench = new QueueBench(redis, driver, 'snapshot');
    producer = bench.producer();
  });
  afterEach(() => bench.close());

  it('runs at the next request for its key', async () => {
    const key = snapshotKey('a');
    await enqueue(key);
    assert.equal(await redis.redis.lrem(`${rootOf(key)}wait`, 0, await jobOf(key)), 1);
    bench.consumer(() => ({ kind: 'done' }));
    await enqueue(key);
    await until(() => bench.runsOf(key).length === 1, 'it ran');
  });

  it('keeps its failures, and waits as long as after the last, where it was delayed', async () => {
    const key = snapshotKey('a');
    bench.readsFailures = true;
    const consumer = bench.consumer(() => ({ kind: 'retry', reason: 'no' }), {
      backoff: { startMs: HOUR_MS, maxMs: HOUR_MS },
      random: () => 0.5,
    });
    await enqueue(key);
    await until(async () => (await dueMs(key)) > 0, 'it is delayed');
    await redis.redis.zrem(`${rootOf(key)}delayed`, await jobOf(key));
    const atMs = Date.now();
    await enqueue(key);
    const waitMs = (await dueMs(key)) - atMs;
    assert.ok(waitMs >= HOUR_MS && waitMs < HOUR_MS + 10_000, `${waitMs} ms`);
    producer.enqueueNow(key);
    await until(() => bench.runsOf(key).length === 2, 'it ran again');
    assert.equal(bench.runsOf(key)[1]?.failures, 1);
    await consumer.close(0);
  });

  it('is looked for by one script for 200 keys, which reads a list of waiting jobs once', async () => {
    const keys = Array.from({ length: 1000 }, (_, n) => snapshotKey(`v${n}`));
    await enqueue(...keys);
    await redis.redis.config('RESETSTAT');
    await enqueue(...keys);
    const { evalsha = 0, lrange = 0 } = await redis.commands();
    // Besides, the leader of this bench looks at Redis' history.
    assert.ok(evalsha <= 1000 + 100, `${evalsha} scripts for 1,000 keys that have jobs`);
    assert.ok(lrange <= 6, `${lrange} reads of the list`);
  });

  it('is not made of one that is delayed, waits, runs or was never there', async () => {
    const [waiting, running, delayed] = [snapshotKey('w'), snapshotKey('r'), snapshotKey('d')];
    let finish = (): void => undefined;
    const finished = new Promise<void>((resolve) => (finish = resolve));
    bench.consumer(
      async ({ name }) => {
        if (name === 'd') return { kind: 'retry', reason: 'no' };
        await finished;
        return { kind: 'done' };
      },
      { backoff: { startMs: HOUR_MS, maxMs: HOUR_MS } },
    );
    await enqueue(waiting, running, delayed);
    await until(async () => (await dueMs(delayed)) > 0, 'one is delayed');
    await until(() => bench.runsOf(running).length === 1, 'one runs');
    for (const key of [waiting, running, delayed, snapshotKey('never')])
      assert.deepEqual(await requeueLostJobs(redis.redis, place(key), [keyId(key)]), [], key.name);
    finish();
  });
});
