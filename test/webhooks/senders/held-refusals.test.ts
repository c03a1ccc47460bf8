import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HeldRefusals } from '#src/webhooks/senders/held-refusals.ts';

/** Lets requests of a sender take their places in its line. */
function beginMany(held: HeldRefusals, sender: string, count: number): readonly unknown[] {
  return Array.from({ length: count }, () => held.begin(sender));
}

describe('the refusals of a sender', () => {
  it('are held one after the other', () =>
    assert.deepEqual(beginMany(new HeldRefusals(), 'a', 3), [250, 500, 750]));

  it('wait for nobody else', () => {
    const held = new HeldRefusals();
    beginMany(held, 'a', 3);
    assert.equal(held.begin('b'), 250);
  });

  it('are sixteen at most', () => {
    const held = new HeldRefusals();
    beginMany(held, 'a', 16);
    assert.equal(held.begin('a'), undefined);
    assert.equal(held.begin('a'), undefined);
  });

  it('make room for others when they were answered', () => {
    const held = new HeldRefusals();
    beginMany(held, 'a', 17);
    held.end('a');
    assert.equal(held.begin('a'), 4_000);
  });
});
