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

  const pending = { name: 'c2', uid: 'u2', isBound: false };
  for (const [what, evidence, found] of [
    ['a volume that no PV names', { ...removed, driverVolumes: bound.driverVolumes }, 'leaked'],
    ['a claim that is not Bound', { ...bound, claims: [claim, pending] }, 'lost'],
    [
      'two volumes for one claim at once',
      { ...bound, calls: [...bound.calls, ...creates(40, 3, 'h2')] },
      'twice',
    ],
    [
      'a deletion while the claim existed',
      { ...removed, claims: [{ ...claim, deleteSentMs: 31 }] },
      'wrong',
    ],
    ['a deletion without one of the claim', { ...removed, claims: [claim] }, 'wrong'],
    [
      'a deletion of a PV that was never Released',
      { ...removed, volumes: [{ ...volume, isThere: false }] },
      'wrong',
    ],
    ['a Bound PV whose volume is gone', { ...bound, driverVolumes: [] }, 'missing'],
  ] as const)
    it(`reports ${what}`, () => assert.deepEqual(countViolations(evidence), { [found]: 1 }));

  it('asks nothing of a claim that was deleted before it was Bound', () => {
    const claims = [claim, { ...pending, deleteSentMs: 5 }];
    assert.deepEqual(countViolations({ ...bound, claims }), {});
  });

  it('counts a volume that was created again after its deletion, as no violation', () => {
    const calls = [...removed.calls, ...creates(40, 3, 'h2')];
    const remade = { ...removed, calls };
    assert.deepEqual(countViolations(remade), {});
    assert.equal(findRemade(remade).length, 1);
    const leaked = [{ handle: 'h2', name: NAME }];
    assert.deepEqual(countViolations({ ...remade, driverVolumes: leaked }), { leaked: 1 });
  });
});
