import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { CallEvent } from '../../chaos/call-log.ts';
import {
  findRemade,
  isClean,
  judge,
  type Evidence,
  type SeenVolume,
  type TrackedClaim,
  type Verdict,
} from '../../chaos/judge.ts';

const NAME = 'pvc-u1';
const boot = { event: 'boot', pid: 1, atMs: 0 } as const;
const creates = (atMs: number, call: number, handle: string): readonly CallEvent[] => [
  { event: 'start', pid: 1, call, atMs, method: 'CreateVolume', volume: NAME },
  { event: 'made', pid: 1, call, atMs: atMs + 5, volume: NAME, handle },
  { event: 'end', pid: 1, call, atMs: atMs + 6, code: 'OK' },
];
const deletes = (atMs: number, call: number, handle: string): readonly CallEvent[] => [
  { event: 'start', pid: 1, call, atMs, method: 'DeleteVolume', volume: handle },
  { event: 'deleted', pid: 1, call, atMs: atMs + 5, handle },
  { event: 'end', pid: 1, call, atMs: atMs + 6, code: 'OK' },
];

const claim: TrackedClaim = { name: 'c1', uid: 'u1', isBound: true };
const volume: SeenVolume = {
  name: NAME,
  handle: 'h1',
  claimUid: 'u1',
  phase: 'Bound',
  wasReleased: false,
  isThere: true,
};
/** A claim with its volume. */
const bound: Evidence = {
  calls: [boot, ...creates(10, 1, 'h1')],
  driverVolumes: [{ handle: 'h1', name: NAME }],
  volumes: [volume],
  claims: [claim],
};
/** The same after the deletion of claim and volume. */
const removed: Evidence = {
  ...bound,
  calls: [...bound.calls, ...deletes(30, 2, 'h1')],
  driverVolumes: [],
  volumes: [{ ...volume, phase: 'Released', wasReleased: true, isThere: false }],
  claims: [{ ...claim, deleteSentMs: 20 }],
};

/** The number of violations of each kind. */
function countViolations(evidence: Evidence): Partial<Record<keyof Verdict, number>> {
  const verdict = Object.entries(judge(evidence)) as [keyof Verdict, readonly string[]][];
  return Object.fromEntries(
    verdict.filter(([, lines]) => lines.length > 0).map(([what, lines]) => [what, lines.length]),
  );
}

describe('judge', () => {
  it('finds nothing in runs without violations', () => {
    for (const evidence of [bound, removed]) {
      assert.deepEqual(countViolations(evidence), {});
      assert.ok(isClean(judge(evidence)));
    }
  });

  it('reports a volume that no PV names', () =>
    assert.deepEqual(countViolations({ ...removed, driverVolumes: bound.driverVolumes }), {
      leaked: 1,
    }));

  it('reports a claim that is not Bound, unless it was deleted', () => {
    const pending = { name: 'c2', uid: 'u2', isBound: false };
    assert.deepEqual(countViolations({ ...bound, claims: [claim, pending] }), { lost: 1 });
    assert.deepEqual(
      countViolations({ ...bound, claims: [claim, { ...pending, deleteSentMs: 5 }] }),
      {},
    );
  });

  it('counts a volume that was created again after its deletion, as no violation', () => {
    const calls = [...removed.calls, ...creates(40, 3, 'h2')];
    const remade = { ...removed, calls };
    assert.deepEqual(countViolations(remade), {});
    assert.equal(findRemade(remade).length, 1);
    const leaked = [{ handle: 'h2', name: NAME }];
    assert.deepEqual(countViolations({ ...remade, driverVolumes: leaked }), { leaked: 1 });
  });

  it('reports two volumes for one claim at once', () => {
    const calls = [...bound.calls, ...creates(40, 3, 'h2')];
    assert.deepEqual(countViolations({ ...bound, calls }), { twice: 1 });
  });

  it('reports a deletion while the claim existed or the PV was never Released', () => {
    assert.deepEqual(countViolations({ ...removed, claims: [{ ...claim, deleteSentMs: 31 }] }), {
      wrong: 1,
    });
    assert.deepEqual(countViolations({ ...removed, claims: [claim] }), { wrong: 1 });
    assert.deepEqual(countViolations({ ...removed, volumes: [{ ...volume, isThere: false }] }), {
      wrong: 1,
    });
  });

  it('reports a Bound PV whose volume is gone', () =>
    assert.deepEqual(countViolations({ ...bound, driverVolumes: [] }), { missing: 1 }));
});
