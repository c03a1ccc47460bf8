import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { JobKey } from '#src/queue/contract.ts';
import { DELAYED_SCORE_PER_MS, queueName, queueRoot } from '#src/queue/queue-keys.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { claimKey, QueueBench, sleep } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

/* Stands for 2,000 failing claims with delays of up to 5 min: here 400 claims with delays of up to
 * 3 s. A busy machine makes calls fewer and later, so only more or sooner is a failure. */
const KEYS = Array.from({ length: 400 }, (_, i) => claimKey(`c${i}`, `ns${i % 5}`));
const BACKOFF = { startMs: 100, maxMs: 3_000 };
const MEASURED_MS = 3_000;
/** The delays are random between 0 and the maximum: in the mean half of it. */
const EXPECTED_CALLS = (KEYS.length * MEASURED_MS) / (BACKOFF.maxMs / 2);

describe('400 claims that fail, and a restart of everything', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());

  it('cause no more calls than without it, and none sooner', async (t) => {
    const failing = (): Outcome => ({ kind: 'retry', reason: 'pool is full' });
    const first = new QueueBench(redis, 'storm.example');
    start(first, failing);
    await until(() => first.runs.length > KEYS.length * 6, 'delays have grown to the maximum');
    await first.close();
    const delaysMs = await readDelays(redis);
    await redis.kill();
    // Long enough for nearly every delay to end before a worker runs again.
    await sleep(2_600);
    await redis.start();
    const second = new QueueBench(redis, 'storm.example');
    second.readsFailures = true;
    const startedMs = Date.now();
    start(second, failing);
    await until(() => second.runs.length > 0, 'a worker runs again');
    const measuredUntilMs = Date.now() + MEASURED_MS;
    await sleep(MEASURED_MS);
    const calls = second.runs.filter(({ atMs }) => atMs < measuredUntilMs).length;
    const firstRuns = new Map<string, number>();
    for (const { key, atMs } of second.runs)
      if (!firstRuns.has(key.uid)) firstRuns.set(key.uid, atMs);
    await second.close();

    t.diagnostic(`${calls} calls, ${EXPECTED_CALLS} expected`);
    // If failures were forgotten, delays would begin at the shortest again: several times as many.
    assert.ok(calls <= EXPECTED_CALLS * 1.5, `${calls} calls`);
    const early = [...delaysMs].filter(
      ([uid, delayMs]) => (firstRuns.get(uid) ?? Infinity) - startedMs < delayMs - 1_000,
    );
    assert.deepEqual(early, [], 'no delay was shortened');
    assert.ok(
      second.runs.every(({ failures }) => failures > 0),
      'no failure is forgotten',
    );
  });

  /** Does what a leader and a worker do when they start: the leader enqueues every outstanding key,
   * then once more, as a resync or an unrelated change does. */
  function start(bench: QueueBench, process: (key: JobKey) => Outcome): void {
    const producer = bench.producer();
    for (const key of KEYS) producer.ensureQueued(key);
    bench.consumer(process, { backoff: BACKOFF, concurrency: 100 });
    void producer.waitUntilFlushed().then(() => KEYS.forEach((key) => producer.ensureQueued(key)));
  }
});

/** Reads how long each key is still delayed. */
async function readDelays(redis: TestRedis): Promise<Map<string, number>> {
  const root = queueRoot('csi', queueName('claim', 'storm.example'));
  const nowMs = Date.now();
  const flat = await redis.redis.zrange(`${root}delayed`, 0, '-1', 'WITHSCORES');
  const found = new Map<string, number>();
  for (let i = 0; i < flat.length; i += 2) {
    const data = JSON.parse(
      (await redis.redis.hget(root + (flat[i] ?? ''), 'data')) ?? '{}',
    ) as JobKey;
    found.set(data.uid, Number(flat[i + 1]) / DELAYED_SCORE_PER_MS - nowMs);
  }
  return found;
}
