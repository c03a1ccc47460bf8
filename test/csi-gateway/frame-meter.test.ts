import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { FrameMeter } from '#src/csi-gateway/frame-meter.ts';
import { EMPTY_SETTINGS, frame, PREFACE } from '../harness/csi-frames.ts';

const PING = frame(6, { payload: Buffer.alloc(8) });
const HEADERS = frame(1, { stream: 1, payload: Buffer.alloc(128) });

/** Cost of these bytes after the preface, given in parts of this size. */
function costOf(bytes: Buffer, partBytes = bytes.length): number {
  const meter = new FrameMeter();
  assert.deepEqual(meter.take(PREFACE, 1), { bytes: PREFACE.length, cost: 0 });
  let cost = 0;
  for (let i = 0; i < bytes.length; i += partBytes) {
    const part = bytes.subarray(i, i + partBytes);
    const taken = meter.take(part, Infinity);
    assert.equal(taken.bytes, part.length);
    cost += taken.cost;
  }
  return cost;
}

describe('FrameMeter', () => {
  it('counts each frame, however small', () => {
    const empty = frame(0, { stream: 1 });
    assert.equal(costOf(Buffer.concat([empty, empty])), 2);
  });

  it('counts more for frames that have to be answered', () => {
    assert.equal(costOf(EMPTY_SETTINGS), 5);
    assert.equal(costOf(PING), 5 + 8 / 256);
  });

  it('counts a call as many frames, and the bytes of its headers', () => {
    assert.equal(costOf(HEADERS), 31 + 128 / 64);
  });

  it('counts the bytes of continued headers as those of headers', () => {
    assert.equal(costOf(frame(9, { stream: 1, payload: Buffer.alloc(6_400) })), 101);
  });

  it('counts the bytes of a frame when they arrive, not when they are announced', () => {
    const announced = Buffer.from([0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]);
    assert.equal(costOf(announced), 1);
    assert.equal(costOf(Buffer.concat([announced, Buffer.alloc(512)])), 3);
  });

  it('counts the same whatever parts the bytes arrive in', () => {
    const bytes = Buffer.concat([
      HEADERS,
      PING,
      frame(0, { stream: 1, payload: Buffer.alloc(500) }),
    ]);
    for (const partBytes of [1, 2, 3, 8, 9, 10, 100])
      assert.equal(costOf(bytes, partBytes), costOf(bytes));
  });

  it('passes on no frame that begins after the credit is spent', () => {
    const meter = new FrameMeter();
    meter.take(PREFACE, 1);
    const pings = Buffer.concat(Array.from({ length: 10 }, () => PING));
    assert.deepEqual(meter.take(pings, 12), { bytes: 3 * PING.length, cost: 15 + (3 * 8) / 256 });
  });

  it('passes on the rest of a frame that has begun, without credit', () => {
    const meter = new FrameMeter();
    meter.take(PREFACE, 1);
    meter.take(PING.subarray(0, 12), 1);
    assert.deepEqual(meter.take(Buffer.concat([PING.subarray(12), PING]), 0), {
      bytes: 5,
      cost: 5 / 256,
    });
  });
});
