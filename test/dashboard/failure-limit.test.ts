import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import {
  FailureLimit,
  FIRST_FAILURES,
  FREE_FAILURES,
  MAX_DELAY_MS,
  REPEATED_FAILURES,
  USER_FAILURES,
} from '#src/dashboard/failure-limit.ts';

const HOUR_MS = 3_600_000;

describe('failure limit', () => {
  let nowMs: number;
  let limit: FailureLimit;
  const from = (address: string, user = 'admin') => ({ address, user });
  /** Sends wrong passwords, each as soon as it is looked at, without waiting.
   * @returns how many were looked at */
  const guess = (addresses: readonly string[], user?: string): number => {
    let count = 0;
    for (const address of addresses) {
      if (limit.waitMs(from(address, user)) > 0) continue;
      limit.countFailure(from(address, user));
      count += 1;
    }
    return count;
  };
  const repeat = (address: string, count: number): string[] =>
    Array.from({ length: count }, () => address);
  /** Addresses in as many networks. */
  const networks = (count: number, first = 10): string[] =>
    Array.from({ length: count }, (_, i) => `${first}.${i >> 16}.${(i >> 8) & 255}.${i & 255}`);

  beforeEach(() => {
    nowMs = 1_000_000_000;
    limit = new FailureLimit({ nowMs: () => nowMs, sleep: () => Promise.resolve() });
  });

  it('doubles the delay with each consecutive failure after the third, up to a minute', () => {
    assert.equal(guess(repeat('192.0.2.1', 20)), FREE_FAILURES);
    const delaysMs = Array.from({ length: 9 }, () => {
      const waitMs = limit.waitMs(from('192.0.2.1'));
      nowMs += waitMs;
      assert.equal(guess(repeat('192.0.2.1', 2)), 1);
      return waitMs;
    });
    assert.deepEqual(
      delaysMs,
      [1, 2, 4, 8, 16, 32, 60, 60, 60].map((seconds) => seconds * 1000),
    );
    assert.equal(limit.waitMs(from('192.0.2.1')), MAX_DELAY_MS);
  });

  it('forgets failures an hour after the last one', () => {
    guess(repeat('192.0.2.1', 3));
    nowMs += HOUR_MS;
    assert.equal(guess(repeat('192.0.2.1', 20)), FREE_FAILURES);
  });

  it('looks at a password from elsewhere while a network is limited', () => {
    guess(repeat('192.0.2.1', 20));
    assert.ok(limit.waitMs(from('192.0.2.1')) > 0);
    assert.equal(limit.waitMs(from('192.0.2.2')), 0);
  });

  it('looks at a password from elsewhere while many networks that failed go on guessing', () => {
    const guessers = networks(20);
    for (let i = 0; i < 600; i += 1) {
      guess(guessers);
      nowMs += 1000;
      assert.equal(limit.waitMs(from('192.0.2.1')), 0, `after ${i} s`);
    }
  });

  it('looks at a password of a user from where that user has logged in, whoever guesses', () => {
    limit.countSuccess(from('192.0.2.1'));
    guess(networks(200));
    guess(networks(200));
    assert.ok(limit.waitMs(from('192.0.2.2')) > 0, 'the budgets are used up');
    assert.equal(limit.waitMs(from('192.0.2.1')), 0);
  });

  it('looks at a password over loopback, whoever guesses on the network', () => {
    guess(networks(200));
    guess(networks(200));
    assert.equal(limit.waitMs(from('127.0.0.1')), 0);
  });

  it('keeps others’ failures counted when somebody logs in from the same network', () => {
    guess(repeat('192.0.2.1', 3), 'root');
    limit.countSuccess(from('192.0.2.1'));
    assert.ok(limit.waitMs(from('192.0.2.1', 'root')) > 0);
    assert.equal(limit.waitMs(from('192.0.2.1')), 0);
  });

  it('bounds guesses from a network where the user logs in again and again', () => {
    let count = 0;
    for (let i = 0; i < 3600; i += 1) {
      limit.countSuccess(from('192.0.2.1'));
      count += guess(repeat('192.0.2.1', 3));
      nowMs += 1000;
    }
    assert.ok(count <= 10 + 600, `${count} guesses in an hour`);
  });

  it('counts all user names of a network together', () => {
    const names = Array.from({ length: 100 }, (_, i) => `user${i}`);
    const count = names.reduce((sum, name) => sum + guess(['192.0.2.1'], name), 0);
    assert.equal(count, FREE_FAILURES);
  });

  it('limits a user name over all networks', () => {
    const guessers = networks(FIRST_FAILURES.burst);
    assert.equal(guess(guessers, 'root'), FIRST_FAILURES.burst);
    assert.equal(guess(guessers), USER_FAILURES.burst, 'second guesses at admin');
    assert.equal(limit.waitMs(from(guessers[0] ?? '')), 6000);
  });

  it('bounds the guesses of all networks together, however many they are', () => {
    const guessers = networks(500);
    let count = 0;
    for (let i = 0; i < 60; i += 1) {
      count += guess(guessers);
      nowMs += 60_000;
    }
    const bound = [FIRST_FAILURES, REPEATED_FAILURES].reduce(
      (sum, { burst, perSecond }) => sum + burst + 3600 * perSecond,
      0,
    );
    assert.ok(count > 100 && count <= bound, `${count} guesses in an hour, bound ${bound}`);
  });

  it('counts 127.0.0.0/8 and ::1 as one address', () => {
    guess(networks(100, 127));
    for (const address of ['127.0.0.1', '127.9.9.9', '::ffff:127.0.0.2', '::1'])
      assert.ok(limit.waitMs(from(address)) > 0, address);
  });

  it('counts the /64 of an IPv6 address as one', () => {
    guess(['2001:db8:1:2::1', '2001:db8:1:2:3:4:5:6', '2001:db8:1:2::9']);
    assert.ok(limit.waitMs(from('2001:db8:1:2:ffff::')) > 0);
    assert.equal(limit.waitMs(from('2001:db8:1:3::1')), 0);
  });
});
