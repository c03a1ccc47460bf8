import assert from 'node:assert/strict';
import { it } from 'node:test';
import { decodeStatusMessage, formatTimeout, stripHopHeaders } from '#src/csi/grpc-wire.ts';

it('formatTimeout rounds up, in a unit of at most 8 digits, to the 24.8 days that grpc-js reads', () => {
  for (const [ms, text] of [
    [0.2, '200u'],
    [99.4, '99400u'],
    [12_345.6, '12346m'],
    [99_999_999, '99999999m'],
    [1e9, '1000000S'],
    [5e11, '2147483S'],
  ] as const)
    assert.equal(formatTimeout(ms), text);
});

it('decodeStatusMessage keeps malformed escapes', () =>
  assert.equal(decodeStatusMessage('100%, line%0Abreak'), '100%, line\nbreak'));

it('stripHopHeaders treats a header named __proto__ like any other', () =>
  assert.equal(stripHopHeaders([['__proto__', 'x']])['__proto__'], 'x'));
