import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { SeenEvents } from '#src/webhooks/seen-events.ts';

describe('events that were seen', () => {
  it('are known for ten minutes', () => {
    const seen = new SeenEvents();
    seen.add('a', 'id', 0);
    assert.equal(seen.has('a', 'id', 599_999), true);
    assert.equal(seen.has('a', 'id', 600_000), false);
  });

  it('are those of one sender', () => {
    const seen = new SeenEvents();
    seen.add('a', 'id', 0);
    assert.equal(seen.has('b', 'id', 0), false);
  });

  it('are the last ten thousand of a sender', () => {
    const seen = new SeenEvents();
    for (let n = 0; n <= 10_000; n += 1) seen.add('a', String(n), 0);
    assert.equal(seen.has('a', '0', 0), false);
    assert.equal(seen.has('a', '1', 0), true);
    assert.equal(seen.has('a', '10000', 0), true);
  });

  it('are the last fifty thousand of all, the sender silent for longest losing its own', () => {
    const seen = new SeenEvents();
    for (let sender = 0; sender < 6; sender += 1)
      for (let n = 0; n < 10_000; n += 1) seen.add(`s${sender}`, String(n), 0);
    assert.equal(seen.has('s0', '9999', 0), false);
    assert.equal(seen.has('s1', '0', 0), true);
    assert.equal(seen.has('s5', '9999', 0), true);
  });
});
