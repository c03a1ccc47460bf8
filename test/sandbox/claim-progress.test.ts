import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { ClaimClocks } from '../../sandbox/claim-progress.ts';

describe('the progress of a claim', () => {
  it('has no time below 0 where its volume is seen first', () => {
    const clocks = new ClaimClocks();
    clocks.begin('default/data', 'when seen');
    clocks.onVolume({ metadata: { name: 'pv' }, spec: {} } as Volume);
    clocks.onClaim({
      metadata: { namespace: 'default', name: 'data' },
      spec: { volumeName: 'pv' },
      status: { phase: 'Bound' },
    } as Claim);
    assert.equal(clocks.all()[0]?.volumeMs, 0);
  });
});
