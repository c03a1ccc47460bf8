import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { gzipSync } from 'node:zlib';
import {
  decodeStatusMessage,
  encodeStatusMessage,
  formatTimeout,
  frameMessage,
  unframeMessage,
  toPairs,
  parseStatusCode,
  parseTimeoutMs,
  stripHopHeaders,
  decompressMessage,
  getSingle,
} from '#src/csi/grpc-wire.ts';

describe('gRPC over HTTP/2', () => {
  it('reads every unit of grpc-timeout', () => {
    for (const [text, ms] of [
      ['5n', 5e-6],
      ['250u', 0.25],
      ['100m', 100],
      ['10S', 10_000],
      ['2M', 120_000],
      ['1H', 3_600_000],
      ['0m', 0],
    ] as const) {
      assert.ok(Math.abs((parseTimeoutMs(text) ?? NaN) - ms) < 1e-9, text);
    }
    for (const text of ['', '10', 'S', '-1S', '123456789m', '1.5S', '1s'])
      assert.equal(parseTimeoutMs(text), undefined, text);
  });

  it('writes a grpc-timeout of at most eight digits, rounded up', () => {
    for (const ms of [0.2, 1, 99.4, 100, 12_345.6, 99_999_999, 1e9, 5e11, 1e15]) {
      const text = formatTimeout(ms);
      assert.match(text, /^[1-9]\d{0,7}[umSH]$/);
      if (ms < 3.6e14) assert.ok((parseTimeoutMs(text) ?? 0) >= ms, `${ms} -> ${text}`);
    }
  });

  it('round-trips any text through grpc-message', () => {
    for (const text of ['', 'pool is full', '100 % voll: größe ☃ 🦆', 'line\nbreak\u0000']) {
      const header = encodeStatusMessage(text);
      assert.match(header, /^[\x20-\x7e]*$/);
      assert.equal(decodeStatusMessage(header), text);
    }
    assert.equal(decodeStatusMessage('100%'), '100%', 'malformed escapes are kept');
  });

  it('reads a status from digits only', () => {
    assert.equal(parseStatusCode('0'), 0);
    assert.equal(parseStatusCode('16'), 16);
    for (const text of [undefined, '', '-1', '1.0', ' 1', '0x3', '9999999999'])
      assert.equal(parseStatusCode(text), undefined);
  });

  it('reads a body with exactly one message and no other', () => {
    assert.deepEqual(unframeMessage(frameMessage(Buffer.from('abc')))?.bytes, Buffer.from('abc'));
    assert.equal(unframeMessage(frameMessage(Buffer.alloc(0)))?.bytes.length, 0);
    const good = frameMessage(Buffer.from('abc'));
    for (const bad of [
      Buffer.alloc(0),
      good.subarray(0, 4),
      good.subarray(0, 7),
      Buffer.concat([good, good]),
      Buffer.concat([Buffer.from([2]), good.subarray(1)]),
    ]) {
      assert.equal(unframeMessage(bad), undefined);
    }
  });

  it('decompresses a message up to a limit', () => {
    const zipped = frameMessage(gzipSync(Buffer.alloc(1000, 'a')));
    zipped[0] = 1;
    assert.equal(decompressMessage(zipped, 'gzip', 2000)?.toString(), 'a'.repeat(1000));
    assert.equal(decompressMessage(zipped, 'gzip', 100), undefined);
    assert.equal(decompressMessage(zipped, 'zstd', 2000), undefined);
    assert.equal(decompressMessage(zipped, undefined, 2000), undefined);
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
