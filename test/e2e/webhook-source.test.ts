import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { liveByHints } from './webhook-source.ts';

describe('ingest without a watch of claims and volumes', () => {
  it('has all claims bound and all volumes deleted, each made once, although 1 event in 10 is lost and others are doubled or late', async () => {
    const lives = await liveByHints({
      claims: 200,
      faults: { lost: 0.1, doubled: 0.1, late: 0.2 },
      resync: '2s',
      withinMs: 60_000,
    });
    assert.ok(lives.lostEvents > 20, `${lives.lostEvents} events were lost`);
    assert.equal(lives.madeByName.size, 200);
    assert.deepEqual(new Set(lives.madeByName.values()), new Set([1]));
    assert.deepEqual(lives.left, []);
    assert.equal(lives.watches, 0);
  });
});
