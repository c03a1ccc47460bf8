import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  acquireDelayMs,
  checkLeaseTimes,
  decide,
  leaseName,
  type LeaseRecord,
  releaseRecord,
} from '#src/election/lease.ts';
import { UsageError } from '#src/runtime/flags.ts';

const heldBy = (holder: string): LeaseRecord => ({
  holder,
  durationMs: 15_000,
  acquiredMs: 500,
  renewedMs: 900,
  transitions: 3,
});
const me = { identity: 'me', leaseDurationMs: 20_000, isLeading: false };
/** A record of ours that was written at this time. */
const mine = (renewedMs: number, acquiredMs: number, transitions: number): LeaseRecord => ({
  holder: 'me',
  durationMs: 20_000,
  acquiredMs,
  renewedMs,
  transitions,
});

describe('decide', () => {
  it('creates a missing Lease', () => {
    const record = mine(1000, 1000, 0);
    assert.deepEqual(decide(undefined, me, 1000), { kind: 'write', record });
  });

  for (const [what, seen, isLeading, nowMs, record] of [
    [
      'renews its own Lease, and keeps the time of acquisition and the transitions',
      { record: heldBy('me'), atMs: 0 },
      true,
      1000,
      mine(1000, 500, 3),
    ],
    [
      'acquires its own Lease again after a loss, without waiting',
      { record: heldBy('me'), atMs: 999 },
      false,
      1000,
      mine(1000, 1000, 3),
    ],
    [
      'takes over a Lease that did not change for its duration, despite its timestamps',
      { record: { ...heldBy('other'), renewedMs: 1e15 }, atMs: 5000 },
      false,
      20_000,
      mine(20_000, 20_000, 4),
    ],
    [
      'acquires a released Lease at once',
      { record: releaseRecord(heldBy('other'), 6000), atMs: 6000 },
      false,
      6000,
      mine(6000, 6000, 4),
    ],
  ] as const)
    it(what, () => {
      const candidate = { ...me, isLeading };
      assert.deepEqual(decide(seen, candidate, nowMs), { kind: 'write', record });
    });

  it('waits for the duration in the record, from when it saw the record change', () => {
    const seen = { record: heldBy('other'), atMs: 5000 };
    for (const [nowMs, forMs] of [
      [5000, 15_000],
      [19_999, 1],
    ] as const)
      assert.deepEqual(decide(seen, me, nowMs), { kind: 'wait', forMs });
  });
});

describe('acquireDelayMs', () => {
  it('is between one period and 2.2 periods', () => {
    assert.equal(acquireDelayMs(5000, 0), 5000);
    assert.equal(acquireDelayMs(5000, 1), 11_000);
  });
});

describe('checkLeaseTimes', () => {
  it('accepts the defaults', () =>
    checkLeaseTimes({ leaseDurationMs: 15_000, renewDeadlineMs: 10_000, retryPeriodMs: 5000 }));

  for (const [times, flag] of [
    [[10_000, 10_000, 5000], /lease-duration must be longer than --leader-election-renew-deadline/],
    [
      [15_000, 6000, 5000],
      /renew-deadline must be longer than 1.2 times --leader-election-retry-period/,
    ],
    [[15_000, 10_000, 0], /retry-period must be more than 0/],
    [[500, 400, 100], /lease-duration must be 1s or more/],
  ] as const) {
    it(`refuses ${times.join('/')}`, () => {
      const [leaseDurationMs, renewDeadlineMs, retryPeriodMs] = times;
      assert.throws(
        () => checkLeaseTimes({ leaseDurationMs, renewDeadlineMs, retryPeriodMs }),
        (error) => error instanceof UsageError && flag.test(error.message),
      );
    });
  }
});

describe('leaseName', () => {
  for (const [driver, name] of [
    ['ebs.csi.aws.com', 'ebs-csi-aws-com'],
    ['test!driver/foo', 'test-driver-foo'],
    ['driver\\', 'driver-X'],
    ['Upper.Case', 'Upper-Case'],
  ] as const) {
    it(`names the Lease of ${driver} as upstream does (Q-53)`, () =>
      assert.equal(leaseName(driver), name));
  }
});
