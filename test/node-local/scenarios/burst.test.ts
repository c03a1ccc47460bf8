import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { playBurst } from './burst.ts';

describe('a burst of claims over nodes with room for exactly so many', () => {
  it('gets a volume for each, and under 1 % of the CreateVolume calls fail', async () => {
    const { claims, calls, volumes } = await playBurst({ nodes: 5, perNode: 20 });
    assert.ok(calls - claims < claims / 100, `${calls - claims} calls failed`);
    assert.deepEqual(volumes, [20, 20, 20, 20, 20]);
  });
});
