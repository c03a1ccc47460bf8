import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { DELAYED_SCORE_PER_MS, queueRoot } from '#src/queue/bullmq-layout.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { queueName } from '#src/queue/key-names.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { claimKey, QueueBench, sleep, until } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

/* 2,000 failing claims with waits up to 5 min and windows of 10 s, in small: 400 with waits up to 3
 * s and windows of half a second. */
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

  it('bring no more calls to the driver afterwards than before, nor sooner', async (t) => {
    const failing = (): Outcome => ({ kind: 'retry', reason: 'pool is full' });
    const first = new QueueBench(redis, 'storm.example');
    start(first, failing);
    await until(() => first.runs.length > KEYS.length * 6, 'waits have grown to their full length');
    const fromMs = Date.now();
    await sleep(MEASURED_MS);
    const before = busiest(first.runs.map(({ atMs }) => atMs).filter((atMs) => atMs >= fromMs));

    await first.close();
    const waitedMs = await waits(redis);
    await redis.kill();
    // So long that nearly every wait is over before anybody is there again.
    await sleep(2_600);
    await redis.start();
    const second = new QueueBench(redis, 'storm.example');
    second.readsFailures = true;
    start(second, failing);
    await until(() => second.runs.length > 0, 'somebody is at work again');
    const backMs = second.runs[0]?.atMs ?? 0;
    await sleep(MEASURED_MS);
    const afterwards = busiest(second.runs.map(({ atMs }) => atMs));
    const firstRuns = new Map<string, number>();
    for (const { key, atMs } of second.runs)
      if (!firstRuns.has(key.uid)) firstRuns.set(key.uid, atMs);
    await second.close();

    t.diagnostic(`calls in the busiest ${WINDOW_MS} ms: ${before} before, ${afterwards} after`);
    // All at once would be 400. A random process on a busy machine: its busiest window of six
    // varies by a third.
    assert.ok(
      afterwards <= before * 1.5,
      `${afterwards} calls in the busiest window, ${before} before`,
    );
    const early = [...waitedMs].filter(
      ([uid, waitMs]) => (firstRuns.get(uid) ?? Infinity) - backMs < waitMs - 1_000,
    );
    assert.deepEqual(early, [], 'no wait was shortened');
    assert.ok(
      second.runs.every(({ failures }) => failures > 0),
      'and no failure forgotten',
    );
  });

  /** What a leader and a worker do when they start: everything outstanding is touched, resyncs and
   * unrelated changes touch it again. */
  function start(bench: QueueBench, process: (key: JobKey) => Outcome): void {
    const producer = bench.producer({ outstanding: () => KEYS });
    for (const key of KEYS) producer.ensureQueued(key);
    bench.consumer(process, { backoff: BACKOFF, concurrency: 100 });
    void producer.flushed().then(() => KEYS.forEach((key) => producer.ensureQueued(key)));
  }
});

/** Calls in the busiest window. */
function busiest(times: readonly number[]): number {
  return Math.max(
    0,
    ...times.map(
      (fromMs) => times.filter((atMs) => atMs >= fromMs && atMs < fromMs + WINDOW_MS).length,
    ),
  );
}

/** How long each key had still to wait. */
async function waits(redis: TestRedis): Promise<Map<string, number>> {
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
