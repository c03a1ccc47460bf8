import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { faultKinds, planFaults, type FaultKind, type SchedulePlan } from '../../chaos/schedule.ts';

const plan: SchedulePlan = {
  seed: 7,
  kinds: Object.keys(faultKinds) as FaultKind[],
  runMs: 600_000,
  gapMs: 2_000,
  replicas: 2,
  timing: { leaseMs: 3_000, ownershipMs: 4_000, lockMs: 30_000 },
};

describe('planFaults', () => {
  it('plans the same faults for the same seed, and others for another seed', () => {
    assert.deepEqual(planFaults(plan), planFaults({ ...plan }));
    assert.notDeepEqual(planFaults(plan), planFaults({ ...plan, seed: 8 }));
  });

  it('uses every kind, and both processes of ingest and jobs', () => {
    const faults = planFaults(plan);
    assert.deepEqual([...new Set(faults.map(({ kind }) => kind))].sort(), [...plan.kinds].sort());
    assert.deepEqual([...new Set(faults.map(({ target }) => target))].sort(), [0, 1]);
  });

  it('ends every fault within the run, and freezes until leases and locks expire', () => {
    const { timing, runMs } = plan;
    for (const { kind, atMs, forMs } of planFaults(plan)) {
      assert.ok(atMs + forMs <= runMs);
      if (kind === 'freeze-leader') assert.ok(forMs > timing.leaseMs);
      if (kind === 'freeze-jobs') assert.ok(forMs > timing.ownershipMs);
      if (kind === 'freeze-jobs-past-lock') assert.ok(forMs > timing.lockMs);
      if (kind === 'freeze-api') assert.ok(forMs > Math.max(timing.leaseMs, timing.ownershipMs));
      if (kind === 'failover-redis') assert.ok(forMs <= 2_000);
    }
  });

  it('plans overlapping faults, but never two of the same process', () => {
    const faults = planFaults(plan);
    const overlapping = faults.flatMap((one) =>
      faults
        .filter((other) => other.atMs > one.atMs && other.atMs < one.atMs + one.forMs)
        .map((other) => [one, other] as const),
    );
    assert.ok(overlapping.length > 0);
    const what = (kind: string): string => kind.split('-')[1] ?? '';
    for (const [one, other] of overlapping) {
      if (what(one.kind) !== what(other.kind)) continue;
      assert.ok(
        ['jobs', 'clock'].includes(what(one.kind)) && one.target !== other.target,
        `${one.kind} and ${other.kind}`,
      );
    }
  });

  it('freezes the API server for at most a quarter of the time', () => {
    const freezes = planFaults(plan).filter(({ kind }) => kind === 'freeze-api');
    assert.ok(freezes.length > 1);
    for (const [i, { atMs, forMs }] of freezes.entries())
      assert.ok((freezes[i + 1]?.atMs ?? Infinity) >= atMs + 4 * forMs);
  });

  it('plans no faults for no kinds', () =>
    assert.deepEqual(planFaults({ ...plan, kinds: [] }), []));
});
