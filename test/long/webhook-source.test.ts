import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { liveByNotices } from './lives-by-notices.ts';

describe('ingest without a watch of claims and volumes, for minutes', () => {
  it('has 2,000 claims bound and all volumes deleted, each made once, although half of the events are lost', async () => {
    const lives = await liveByNotices({
      claims: 2_000,
      faults: { lost: 0.5, doubled: 0.3, late: 0.5 },
      resync: '10s',
      withinMs: 600_000,
    });
    assert.ok(lives.lostEvents > 1_000, `${lives.lostEvents} events were lost`);
    assert.equal(lives.madeByName.size, 2_000);
    assert.deepEqual(new Set(lives.madeByName.values()), new Set([1]));
    assert.deepEqual(lives.left, []);
  });
});
