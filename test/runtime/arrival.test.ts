import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Arrival } from '#src/runtime/arrival.ts';

function arrive(frames: number, bytes: number): Arrival {
  const arrival = new Arrival();
  for (let i = 0; i < frames; i += 1) arrival.add(Buffer.alloc(bytes));
  return arrival;
}

describe('Arrival', () => {
  it('takes a large request in full frames', () => {
    assert.equal(arrive(4_096, 16_384).isScattered, false);
  });

  it('takes a small request byte by byte', () => {
    assert.equal(arrive(1_000, 1).isScattered, false);
  });

  it('finds a request of thousands of one-byte frames scattered', () => {
    assert.equal(arrive(1_100, 1).isScattered, true);
  });
});
