import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { playBurst } from '../node-local/scenarios/burst.ts';

describe('a burst of 1,000 claims over 10 nodes with room for exactly 1,000', () => {
  it('gets a volume for each, and under 1 % of the CreateVolume calls fail', async (t) => {
    const result = await playBurst({ nodes: 10, perNode: 100 });
    t.diagnostic(JSON.stringify(result));
    const failed = result.calls - result.claims;
    assert.ok(failed < result.claims / 100, `${failed} calls failed`);
    assert.ok(
      result.volumes.every((volumes) => volumes === 100),
      String(result.volumes),
    );
  });
});
