import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { FailureLimit, MAX_FAILURES, WINDOW_MS } from '#src/dashboard/failure-limit.ts';

describe('FailureLimit', () => {
  let nowMs = 0;
  const limitAfter = (addresses: readonly string[]): FailureLimit => {
    const limit = new FailureLimit({ nowMs: () => nowMs, sleep: () => Promise.resolve() });
    for (const address of addresses) limit.countFailure(address);
    return limit;
  };
  const repeat = (address: string, count: number): string[] =>
    Array.from({ length: count }, () => address);

  it('makes an address wait after five failures in a minute', () => {
    nowMs = 1000;
    const limit = limitAfter(repeat('192.0.2.1', MAX_FAILURES - 1));
    assert.equal(limit.waitMs('192.0.2.1'), 0);
    limit.countFailure('192.0.2.1');
    assert.equal(limit.waitMs('192.0.2.1'), WINDOW_MS);
    assert.equal(limit.waitMs('192.0.2.2'), 0);
    nowMs += WINDOW_MS;
    assert.equal(limit.waitMs('192.0.2.1'), 0);
  });

  it('counts from zero after clear()', () => {
    const limit = limitAfter(repeat('192.0.2.1', MAX_FAILURES - 1));
    limit.clear('192.0.2.1');
    limit.countFailure('192.0.2.1');
    assert.equal(limit.waitMs('192.0.2.1'), 0);
  });

  it('counts an IPv6 network as one address, and a mapped IPv4 address as itself', () => {
    const limit = limitAfter([
      '2001:db8:1:2::1',
      '2001:db8:1:2:3:4:5:6',
      '2001:db8:1:2::9',
      '2001:db8:1:2::a',
      '2001:db8:1:2::b',
    ]);
    assert.ok(limit.waitMs('2001:db8:1:2:ffff::') > 0);
    assert.equal(limit.waitMs('2001:db8:1:3::1'), 0);
    const mapped = limitAfter(repeat('::ffff:192.0.2.1', MAX_FAILURES));
    assert.ok(mapped.waitMs('192.0.2.1') > 0);
    assert.equal(mapped.waitMs('::ffff:192.0.2.2'), 0);
  });

  it('forgets the oldest address beyond ten thousand', () => {
    const limit = limitAfter(repeat('192.0.2.1', MAX_FAILURES));
    for (let i = 0; i < 10_000; i += 1)
      limit.countFailure(`10.0.${Math.floor(i / 256)}.${i % 256}`);
    assert.equal(limit.waitMs('192.0.2.1'), 0);
  });
});
