import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { SenderRates } from '#src/webhooks/senders/sender-rates.ts';

function rates(perSecond: number, totalPerSecond: number): SenderRates {
  return new SenderRates({ perSecond, totalPerSecond, nowMs: 0 });
}

/** How many of `count` events at one time are let in. */
function takeMany(limits: SenderRates, sender: string, count: number, nowMs: number): number {
  return Array.from({ length: count }).filter(() => limits.take(sender, nowMs) === 0).length;
}

describe('the rates of senders', () => {
  it('let a sender send a second’s events at once, and no more', () => {
    const limits = rates(10, 1_000);
    assert.equal(takeMany(limits, 'a', 20, 0), 10);
    assert.equal(takeMany(limits, 'a', 20, 500), 5);
  });

  it('say how long a sender has to wait', () => {
    const limits = rates(10, 1_000);
    takeMany(limits, 'a', 10, 0);
    assert.equal(limits.take('a', 0), 100);
  });

  it('count each sender apart', () => {
    const limits = rates(10, 1_000);
    takeMany(limits, 'a', 20, 0);
    assert.equal(takeMany(limits, 'b', 20, 0), 10);
  });

  it('make a sender wait for the rest of a batch', () => {
    const limits = rates(10, 1_000);
    assert.equal(limits.take('a', 0), 0);
    limits.charge('a', 29, 0);
    assert.ok(limits.take('a', 1_000) > 0);
    assert.equal(limits.take('a', 3_000), 0);
  });

  it('let a sender that sends little in while others send too much', () => {
    const limits = rates(1_000, 100);
    let refused = 0;
    for (let nowMs = 0; nowMs < 10_000; nowMs += 10) {
      for (let sender = 0; sender < 20; sender += 1) limits.take(`flood ${sender}`, nowMs);
      if (nowMs % 1_000 === 0 && limits.take('quiet', nowMs) > 0) refused += 1;
    }
    assert.equal(refused, 0);
  });

  it('let such a sender send a few at once', () => {
    const limits = rates(1_000, 100);
    let refused = 0;
    for (let nowMs = 0; nowMs < 10_000; nowMs += 10) {
      for (let sender = 0; sender < 100; sender += 1) limits.take(`flood ${sender}`, nowMs);
      if (nowMs === 5_000) refused = 5 - takeMany(limits, 'quiet', 5, nowMs);
    }
    assert.equal(refused, 0);
  });

  it('keep all senders together within about the total', () => {
    const limits = rates(1_000, 100);
    let taken = 0;
    for (let nowMs = 0; nowMs < 10_000; nowMs += 10)
      for (let sender = 0; sender < 20; sender += 1)
        taken += takeMany(limits, `flood ${sender}`, 1, nowMs);
    // 100 a second, as many at once at the start, and the first shares.
    assert.ok(taken <= 1_500, `${taken} events`);
  });

  it('let one sender have all if nobody else sends', () => {
    const limits = rates(1_000, 100);
    takeMany(limits, 'a', 1_000, 0);
    assert.ok(takeMany(limits, 'a', 1_000, 1_000) >= 100);
  });
});
