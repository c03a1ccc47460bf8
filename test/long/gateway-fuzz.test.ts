import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { makeFolder } from '../harness/csi-folder.ts';
import { fuzzGateway } from '../harness/csi-fuzz.ts';

const MOST_GROWTH = 1.2;

describe('the gateway’s listener under a minute of malformed traffic', () => {
  for (const seed of [1, 2]) {
    it(
      `serves valid calls, does not crash, and frees its memory, with seed ${seed}`,
      { timeout: 300_000 },
      async (t) => {
        const folder = await makeFolder();
        const report = await fuzzGateway({
          folder,
          durationMs: 60_000,
          seed,
          idleConnections: 1_000,
          mostGrowth: MOST_GROWTH,
        });
        await folder.remove();
        t.diagnostic(JSON.stringify({ ...report, attacks: Object.fromEntries(report.attacks) }));
        assert.equal(report.ending, '');
        assert.deepEqual(report.defects, []);
        assert.deepEqual(report.failures, []);
        assert.ok(report.goodCalls > 0 && report.goodAfterwards);
        const { before, after } = report.rss;
        assert.ok(after <= before * MOST_GROWTH, `${after} bytes, ${before} before`);
      },
    );
  }
});
