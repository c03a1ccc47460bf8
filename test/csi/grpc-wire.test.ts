import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  decodeStatusMessage,
  formatTimeout,
  toPairs,
  stripHopHeaders,
  getSingle,
} from '#src/csi/grpc-wire.ts';

describe('gRPC over HTTP/2', () => {
  it('writes a grpc-timeout in microseconds, milliseconds or seconds, rounded up', () => {
    for (const [ms, text] of [
      [0.2, '200u'],
      [99.4, '99400u'],
      [12_345.6, '12346m'],
      [99_999_999, '99999999m'],
      [1e9, '1000000S'],
    ] as const)
      assert.equal(formatTimeout(ms), text);
  });

  it('writes no grpc-timeout above the 24.8 days that grpc-js can read', () => {
    for (const ms of [5e11, 1e15]) assert.equal(formatTimeout(ms), '2147483S');
  });

  it('reads any text from grpc-message', () => {
    for (const [header, text] of [
      ['', ''],
      ['pool is full', 'pool is full'],
      ['100 %25 voll: gr%C3%B6%C3%9Fe %E2%98%83', '100 % voll: größe ☃'],
      ['line%0Abreak%00', 'line\nbreak\u0000'],
    ] as const)
      assert.equal(decodeStatusMessage(header), text);
    assert.equal(decodeStatusMessage('100%'), '100%', 'malformed escapes are kept');
  });

  it('forwards metadata with duplicates, without hop headers and sutler-*', () => {
    const pairs = toPairs([
      ':path',
      '/x',
      'x-a',
      '1',
      'x-a',
      '2',
      'te',
      'trailers',
      'sutler-driver-status',
      '1',
      'b-bin',
      'AAE=',
      'grpc-timeout',
      '1S',
    ]);
    assert.deepEqual({ ...stripHopHeaders(pairs) }, { 'x-a': ['1', '2'], 'b-bin': 'AAE=' });
    assert.equal(getSingle(pairs, 'x-a'), undefined);
    assert.equal(getSingle(pairs, 'b-bin'), 'AAE=');
  });

  it('treats a header named __proto__ like any other', () => {
    assert.equal(stripHopHeaders([['__proto__', 'x']])['__proto__'], 'x');
  });
});
