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

describe('decide', () => {
  it('creates a missing Lease', () => {
    assert.deepEqual(decide(undefined, me, 1000), {
      kind: 'create',
      record: {
        holder: 'me',
        durationMs: 20_000,
        acquiredMs: 1000,
        renewedMs: 1000,
        transitions: 0,
      },
    });
  });

  it('renews its own Lease, and keeps the time of acquisition and the transitions', () => {
    assert.deepEqual(decide({ record: heldBy('me'), atMs: 0 }, { ...me, isLeading: true }, 1000), {
      kind: 'update',
      record: {
        holder: 'me',
        durationMs: 20_000,
        acquiredMs: 500,
        renewedMs: 1000,
        transitions: 3,
      },
    });
  });

  it('acquires its own Lease again after a loss, without waiting', () => {
    assert.deepEqual(decide({ record: heldBy('me'), atMs: 999 }, me, 1000), {
      kind: 'update',
      record: {
        holder: 'me',
        durationMs: 20_000,
        acquiredMs: 1000,
        renewedMs: 1000,
        transitions: 3,
      },
    });
  });

  it('waits for the duration in the record, from when it saw the record change', () => {
    assert.deepEqual(decide({ record: heldBy('other'), atMs: 5000 }, me, 5000), {
      kind: 'wait',
      holder: 'other',
      forMs: 15_000,
    });
    assert.deepEqual(decide({ record: heldBy('other'), atMs: 5000 }, me, 19_999), {
      kind: 'wait',
      holder: 'other',
      forMs: 1,
    });
  });

  it('takes over a Lease that did not change for its duration, despite its timestamps', () => {
    const inTheFuture = { ...heldBy('other'), renewedMs: 1e15 };
    assert.deepEqual(decide({ record: inTheFuture, atMs: 5000 }, me, 20_000), {
      kind: 'update',
      record: {
        holder: 'me',
        durationMs: 20_000,
        acquiredMs: 20_000,
        renewedMs: 20_000,
        transitions: 4,
      },
    });
  });

  it('acquires a released Lease at once', () => {
    const decision = decide({ record: releaseRecord(heldBy('other'), 6000), atMs: 6000 }, me, 6000);
    assert.equal(decision.kind, 'update');
    assert.equal(decision.kind === 'update' && decision.record.transitions, 4);
  });
});

describe('releaseRecord', () => {
  it('has no holder, a duration of one second, and the transitions so far', () => {
    assert.deepEqual(releaseRecord(heldBy('me'), 7000), {
      holder: '',
      durationMs: 1000,
      acquiredMs: 7000,
      renewedMs: 7000,
      transitions: 3,
    });
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
