import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ageOf, canonicalMicroTime, canonicalTime } from '../../../sandbox/api/time.ts';

describe('canonicalTime', () => {
  it('converts to whole seconds in UTC', () =>
    assert.equal(canonicalTime('2026-11-21T03:00:00.9+01:00'), '2026-11-21T02:00:00Z'));
  it('returns undefined for other formats', () =>
    assert.equal(canonicalTime('2026-11-21 03:00'), undefined));
  it('returns undefined for a day that does not exist', () =>
    assert.equal(canonicalTime('2026-13-41T03:00:00Z'), undefined));
});

describe('canonicalMicroTime', () => {
  it('keeps six digits', () =>
    assert.equal(
      canonicalMicroTime('2026-11-21T03:00:00.123456+01:00'),
      '2026-11-21T02:00:00.123456Z',
    ));
  for (const text of [
    '2026-11-21T03:00:00.123Z',
    '2026-11-21T03:00:00Z',
    '2026-11-21T03:00:00.123456789Z',
  ]) {
    it(`returns undefined for ${text}`, () => assert.equal(canonicalMicroTime(text), undefined));
  }
});

describe('ageOf', () => {
  const nowMs = Date.parse('2026-11-21T00:00:00Z');
  for (const [seconds, age] of [
    [0, '0s'],
    [119, '119s'],
    [120, '2m'],
    [599, '9m59s'],
    [3600, '60m'],
    [3 * 3600, '3h'],
    [3 * 3600 + 60, '3h1m'],
    [47 * 3600, '47h'],
    [49 * 3600, '2d1h'],
    [10 * 86_400, '10d'],
    [3 * 365 * 86_400, '3y'],
    [-5, '<invalid>'],
  ] as const) {
    it(`shows ${seconds} s as ${age}`, () =>
      assert.equal(ageOf(new Date(nowMs - seconds * 1000).toISOString(), nowMs), age));
  }
  it('returns <unknown> without a time', () => assert.equal(ageOf(undefined, nowMs), '<unknown>'));
});
