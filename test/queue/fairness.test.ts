import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Fairness } from '#src/queue/fairness.ts';

const LAST_PRIORITY = 2_097_151;

describe('Fairness', () => {
  it('assumes that all keys were taken when none waits', () => {
    const fairness = new Fairness();
    for (let i = 0; i < 100; i += 1) fairness.next('large');
    fairness.observe(undefined);
    assert.equal(fairness.next('small'), 101);
    assert.equal(fairness.next('large'), 101);
  });

  it('never goes back, so that new keys can’t overtake an old one for ever', () => {
    const fairness = new Fairness();
    fairness.observe(500);
    fairness.observe(3);
    assert.equal(fairness.next('a'), 500);
  });

  it('begins anew once half of BullMQ’s priorities are used and no key waits', () => {
    const fairness = new Fairness();
    fairness.observe(1_200_000);
    const last = fairness.next('a');
    fairness.observe(last);
    assert.equal(fairness.next('a'), last + 1);
    fairness.observe(undefined);
    assert.equal(fairness.next('a'), 1);
  });

  it('stays within BullMQ’s priorities', () => {
    const full = new Fairness();
    full.observe(LAST_PRIORITY);
    assert.equal(full.next('a'), LAST_PRIORITY);
    assert.equal(full.next('a'), LAST_PRIORITY);
  });
});
