import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { percentile } from '../../bench/percentile.ts';
import { cpuMs, rssBytes } from '../../bench/proc.ts';
import { timesOf } from '../../bench/report.ts';

describe('percentile', () => {
  it('returns one of the values, by nearest rank', () => {
    const values = [40, 10, 30, 20];
    assert.deepEqual(
      [0, 0.25, 0.5, 0.51, 0.99, 1].map((share) => percentile(values, share)),
      [10, 10, 20, 30, 40, 40],
    );
    assert.ok(Number.isNaN(percentile([], 0.5)));
  });
});

describe('timesOf', () => {
  it('measures rates from the first request, and latency from the answer, to the PV', () => {
    const times = timesOf(
      [
        { name: 'a', answeredMs: 110, volumeMs: 130, boundMs: 600 },
        // The watch was faster than the answer.
        { name: 'b', answeredMs: 500, volumeMs: 490, boundMs: 1100 },
      ],
      100,
    );
    assert.deepEqual(times, {
      claims: 2,
      volumesPerSecond: (2 / 390) * 1000,
      boundPerSecond: 2,
      p50Ms: 0,
      p99Ms: 20,
      worstMs: 20,
    });
  });

  it('returns NaN as the Bound rate of deletions', () => {
    assert.ok(Number.isNaN(timesOf([{ name: 'a', answeredMs: 1, volumeMs: 2 }], 0).boundPerSecond));
  });
});

describe('proc', () => {
  it('reads the same CPU time and memory of this process as Node', async () => {
    const { user, system } = process.cpuUsage();
    const ms = await cpuMs(process.pid);
    assert.ok(
      Math.abs(ms - (user + system) / 1000) < 200,
      `${ms} ms against ${(user + system) / 1000} ms`,
    );
    const rss = await rssBytes(process.pid);
    assert.ok(Math.abs(rss - process.memoryUsage.rss()) < 50 * 2 ** 20, String(rss));
  });
});
