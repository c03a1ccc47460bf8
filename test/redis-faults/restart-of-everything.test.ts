import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { DELAYED_SCORE_PER_MS, queueRoot } from '#src/queue/bullmq-layout.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { queueName } from '#src/queue/key-names.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { claimKey, QueueBench, sleep } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

/* Stands for 2,000 failing claims with delays of up to 5 min, measured in windows of 10 s: here 400
 * claims with delays of up to 3 s, measured in windows of half a second. */
const KEYS = Array.from({ length: 400 }, (_, i) => claimKey(`c${i}`, `ns${i % 5}`));
const BACKOFF = { startMs: 100, maxMs: 3_000 };
const WINDOW_MS = 500;
const MEASURED_MS = 3_000;

describe('400 claims that fail, and a restart of everything', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());

  it('cause no more calls at a time than before, and none sooner', async (t) => {
    const failing = (): Outcome => ({ kind: 'retry', reason: 'pool is full' });
    const first = new QueueBench(redis, 'storm.example');
    start(first, failing);
    await until(() => first.runs.length > KEYS.length * 6, 'delays have grown to the maximum');
    const fromMs = Date.now();
    await sleep(MEASURED_MS);
    const before = countBusiest(
      first.runs.map(({ atMs }) => atMs).filter((atMs) => atMs >= fromMs),
    );

    await first.close();
    const delaysMs = await readDelays(redis);
    await redis.kill();
    // Long enough for nearly every delay to end before a worker runs again.
    await sleep(2_600);
    await redis.start();
    const second = new QueueBench(redis, 'storm.example');
    second.readsFailures = true;
    start(second, failing);
    await until(() => second.runs.length > 0, 'a worker runs again');
    const firstRunMs = second.runs[0]?.atMs ?? 0;
    await sleep(MEASURED_MS);
    const afterwards = countBusiest(second.runs.map(({ atMs }) => atMs));
    const firstRuns = new Map<string, number>();
    for (const { key, atMs } of second.runs)
      if (!firstRuns.has(key.uid)) firstRuns.set(key.uid, atMs);
    await second.close();

    t.diagnostic(`calls in the busiest ${WINDOW_MS} ms: ${before} before, ${afterwards} after`);
    // All at once would be 400. Delays are random and the machine is busy, so the busiest of six
    // windows varies by a third.
    assert.ok(
      afterwards <= before * 1.5,
      `${afterwards} calls in the busiest window, ${before} before`,
    );
    const early = [...delaysMs].filter(
      ([uid, delayMs]) => (firstRuns.get(uid) ?? Infinity) - firstRunMs < delayMs - 1_000,
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

/** Counts the calls in the busiest window. */
function countBusiest(times: readonly number[]): number {
  return Math.max(
    0,
    ...times.map(
      (fromMs) => times.filter((atMs) => atMs >= fromMs && atMs < fromMs + WINDOW_MS).length,
    ),
  );
}

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
