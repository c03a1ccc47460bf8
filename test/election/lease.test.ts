import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { checkLeaseTimes, leaseName } from '#src/election/lease.ts';
import { UsageError } from '#src/runtime/flags.ts';

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
