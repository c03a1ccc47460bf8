import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { makeFolder } from '../harness/csi-folder.ts';
import { fuzzGateway } from '../harness/csi-fuzz.ts';

/** test/long/gateway-fuzz.test.ts does the same for a minute. */
describe('the gateway under attack for four seconds', () => {
  it('serves well-formed calls, does not crash, and frees its memory', async (t) => {
    const folder = await makeFolder();
    const seed = Date.now() % 1_000_000;
    const report = await fuzzGateway({ folder, durationMs: 4_000, seed, idleConnections: 1_000 });
    await folder.remove();
    t.diagnostic(
      `seed ${seed}: ${JSON.stringify({ ...report, attacks: Object.fromEntries(report.attacks) })}`,
    );
    assert.equal(report.ending, '');
    assert.deepEqual(report.defects, []);
    assert.deepEqual(report.failures, []);
    assert.ok(report.goodCalls > 0 && report.goodAfterwards);
    const { before, after } = report.rss;
    assert.ok(after <= before * 1.2, `${after} bytes, ${before} before`);
  });
});
