import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { makeFolder } from '../harness/csi-folder.ts';
import { fuzzGateway } from '../harness/csi-fuzz.ts';

/** V8 needs a minute or more to free the last of it, on a machine with other work: a fifth more is
 * what test/long/gateway-fuzz.test.ts allows, which does the same for a minute. */
const MOST_GROWTH = 1.35;

describe('the gateway under attack for four seconds', () => {
  it('serves well-formed calls, does not crash, and frees its memory', async (t) => {
    const folder = await makeFolder();
    const seed = Date.now() % 1_000_000;
    const report = await fuzzGateway({
      folder,
      durationMs: 4_000,
      seed,
      idleConnections: 1_000,
      mostGrowth: MOST_GROWTH,
    });
    await folder.remove();
    t.diagnostic(
      `seed ${seed}: ${JSON.stringify({ ...report, attacks: Object.fromEntries(report.attacks) })}`,
    );
    assert.equal(report.ending, '');
    assert.deepEqual(report.defects, []);
    assert.deepEqual(report.failures, []);
    assert.ok(report.goodCalls > 0 && report.goodAfterwards);
    const { before, after } = report.rss;
    assert.ok(after <= before * MOST_GROWTH, `${after} bytes, ${before} before`);
  });
});
