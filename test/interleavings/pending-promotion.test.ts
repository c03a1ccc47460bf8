import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import type { JobKey } from '#src/queue/contract.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { claimKey, QueueBench, sleep } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const KEYS = 150;
/** enqueueNow comes at any time around the end of a run. */
const SPREAD_MS = 20;

const DELAYING: readonly { readonly title: string; readonly outcome: Outcome }[] = [
  { title: 'is parked', outcome: { kind: 'parked', reason: 'x' } },
  {
    title: 'is delayed after a failure',
    outcome: { kind: 'retry', reason: 'x', minDelayMs: 600_000 },
  },
  { title: 'is delayed without one', outcome: { kind: 'later', reason: 'x', delayMs: 600_000 } },
];

describe('enqueueNow around the end of a run', () => {
  let redis: TestRedis;
  let bench: QueueBench;
  let serial = 0;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(() => {
    serial += 1;
    bench = new QueueBench(redis, `d${serial}.example`);
  });
  afterEach(() => bench.close());

  for (const { title, outcome } of DELAYING) {
    it(`always runs the key again when the key ${title}`, async () => {
      const producer = bench.producer();
      const seen = new Map<string, number>();
      const work = async ({ uid }: JobKey): Promise<Outcome> => {
        const runs = (seen.get(uid) ?? 0) + 1;
        seen.set(uid, runs);
        if (runs > 1) return { kind: 'done' };
        const key = keys.find((each) => each.uid === uid);
        assert.ok(key);
        setTimeout(() => producer.enqueueNow(key), Math.random() * SPREAD_MS);
        await sleep(Math.random() * SPREAD_MS);
        return outcome;
      };
      const keys = Array.from({ length: KEYS }, (_, i) => claimKey(`c${i}`));
      bench.consumer(work, { backoff: { startMs: 10, maxMs: 600_000 } });
      for (const key of keys) producer.ensureQueued(key);
      await until(
        () => keys.every(({ uid }) => (seen.get(uid) ?? 0) >= 2),
        'every key ran again',
        30_000,
      );
      assert.deepEqual(bench.doubles, []);
    });
  }
});
