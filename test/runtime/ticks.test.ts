import assert from 'node:assert/strict';
import { performance } from 'node:perf_hooks';
import { describe, it } from 'node:test';
import { everyPeriod, untilNext } from '#src/runtime/ticks.ts';
import { sleep } from '../harness/queue.ts';
import { until } from '../harness/until.ts';

const PERIOD_MS = 100;

describe('untilNext', () => {
  it('ends at a multiple of the period, and not at one that is as good as reached', () => {
    for (let i = 0; i < 10_000; i += 1) {
      const beforeMs = performance.now();
      const waitMs = untilNext(PERIOD_MS);
      const afterMs = performance.now();
      assert.ok(waitMs >= 0.05 * PERIOD_MS && waitMs <= 1.05 * PERIOD_MS + 1, `${waitMs} ms`);
      // Rounded up, to whole milliseconds.
      const multipleMs = Math.floor((afterMs + waitMs) / PERIOD_MS) * PERIOD_MS;
      assert.ok(beforeMs + waitMs - 1 <= multipleMs, `${beforeMs} and ${waitMs} ms`);
    }
  });
});

describe('everyPeriod', () => {
  it('ticks again and again until it is ended', async () => {
    let ticks = 0;
    const end = everyPeriod(PERIOD_MS / 10, () => void (ticks += 1));
    await until(() => ticks >= 3, 'three ticks');
    end();
    const before = ticks;
    await sleep(PERIOD_MS / 2);
    assert.equal(ticks, before);
  });
});
