import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { CallEvent } from '../../chaos/call-log.ts';
import type { DataLoss } from '../../chaos/data-loss.ts';
import {
  findRemadeAfterLoss,
  isClean,
  judge,
  type Evidence,
  type SeenVolume,
  type TrackedClaim,
  type Verdict,
} from '../../chaos/judge.ts';

const NAME = 'pvc-u1';
const boot = (atMs: number, pid: number): CallEvent => ({ event: 'boot', pid, atMs });
const starts = (
  atMs: number,
  call: number,
  method: 'CreateVolume' | 'DeleteVolume' = 'CreateVolume',
  volume = NAME,
): CallEvent => ({
  event: 'start',
  pid: 1,
  call,
  atMs,
  method,
  volume,
});
const made = (atMs: number, call: number, handle: string): CallEvent => ({
  event: 'made',
  pid: 1,
  call,
  atMs,
  volume: NAME,
  handle,
});
const deleted = (atMs: number, call: number, handle: string): CallEvent => ({
  event: 'deleted',
  pid: 1,
  call,
  atMs,
  handle,
});
const ends = (atMs: number, call: number): CallEvent => ({
  event: 'end',
  pid: 1,
  call,
  atMs,
  code: 'OK',
});
const cut = (atMs: number, call: number): CallEvent => ({ event: 'cut', pid: 1, call, atMs });

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
  calls: [boot(0, 1), starts(10, 1), made(15, 1, 'h1'), ends(16, 1)],
  driverVolumes: [{ handle: 'h1', name: NAME }],
  volumes: [volume],
  claims: [claim],
  openRecords: [],
  losses: [],
};
/** The same after the deletion of claim and volume. */
const removed: Evidence = {
  ...bound,
  calls: [...bound.calls, starts(30, 2, 'DeleteVolume', 'h1'), deleted(35, 2, 'h1'), ends(36, 2)],
  driverVolumes: [],
  volumes: [{ ...volume, phase: 'Released', wasReleased: true, isThere: false }],
  claims: [{ ...claim, deleteSentMs: 20 }],
};

/** A failover that lost what was written between the two times. */
const loss = (splitMs: number, killedMs: number, id = 'u1'): DataLoss => ({
  splitMs,
  killedMs,
  overMs: killedMs,
  keys: 1,
  records: [id],
  forgotten: [id],
  reopened: [],
});

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

  it('names the failover that lost the record of a leaked volume', () => {
    const leaked = { ...removed, driverVolumes: bound.driverVolumes, losses: [loss(9, 20)] };
    assert.deepEqual(judge(leaked).leaked, [
      `h1 (${NAME}): no PV names it; Redis lost what its record had from 9 to 20`,
    ]);
  });

  it('reports no leak while an open record or a pending claim leads to the volume', () => {
    const unnamed = { ...bound, volumes: [] };
    assert.deepEqual(countViolations({ ...unnamed, openRecords: ['u1'] }), {});
    assert.deepEqual(countViolations({ ...unnamed, claims: [{ ...claim, isBound: false }] }), {
      lost: 1,
    });
    assert.deepEqual(countViolations(unnamed), { leaked: 1 });
  });

  it('reports a claim that is not Bound, unless it was deleted', () => {
    const pending = { name: 'c2', uid: 'u2', isBound: false };
    assert.deepEqual(countViolations({ ...bound, claims: [claim, pending] }), { lost: 1 });
    assert.deepEqual(
      countViolations({ ...bound, claims: [claim, { ...pending, deleteSentMs: 5 }] }),
      {},
    );
  });

  it('reports two calls for one name at once', () => {
    assert.deepEqual(
      countViolations({
        ...bound,
        calls: [
          boot(0, 1),
          starts(10, 1),
          starts(11, 2),
          made(15, 1, 'h1'),
          ends(16, 1),
          ends(17, 2),
        ],
      }),
      {
        double: 1,
      },
    );
  });

  it('reports a deletion by handle while a creation by name is under way', () => {
    const calls = [
      ...bound.calls,
      starts(30, 2),
      starts(31, 3, 'DeleteVolume', 'h1'),
      ends(32, 3),
      ends(33, 2),
    ];
    assert.deepEqual(countViolations({ ...removed, calls }), { double: 1 });
  });

  it('accepts a call after one that was cut or whose driver was killed', () => {
    assert.deepEqual(
      countViolations({
        ...bound,
        calls: [
          boot(0, 1),
          starts(10, 1),
          cut(12, 1),
          starts(13, 2),
          made(15, 2, 'h1'),
          ends(16, 2),
        ],
      }),
      {},
    );
    assert.deepEqual(
      countViolations({
        ...bound,
        calls: [
          boot(0, 1),
          starts(10, 1),
          boot(12, 2),
          starts(13, 1),
          made(15, 1, 'h1'),
          ends(16, 1),
        ],
      }),
      {},
    );
  });

  it('reports a volume that was created again after its deletion', () => {
    const calls = [...removed.calls, starts(40, 3), made(45, 3, 'h2'), ends(46, 3)];
    assert.deepEqual(countViolations({ ...removed, calls }), { remade: 1 });
  });

  it('counts a volume that was made again after a loss in its record, as no violation', () => {
    const calls = [...removed.calls, starts(40, 3), made(45, 3, 'h2'), ends(46, 3)];
    const remade = { ...removed, calls, losses: [loss(34, 38)] };
    assert.deepEqual(countViolations(remade), {});
    assert.equal(findRemadeAfterLoss(remade).length, 1);
    const leaked = [{ handle: 'h2', name: NAME }];
    assert.deepEqual(countViolations({ ...remade, driverVolumes: leaked }), { leaked: 1 });
  });

  it('reports a volume that was created again although Redis lost nothing of its record', () => {
    const calls = [...removed.calls, starts(60, 3), made(65, 3, 'h2'), ends(66, 3)];
    for (const losses of [[loss(34, 38, 'u2')], [loss(66, 68)]]) {
      const remade = { ...removed, calls, losses };
      assert.deepEqual(countViolations(remade), { remade: 1 });
      assert.deepEqual(findRemadeAfterLoss(remade), []);
    }
  });

  it('reports two volumes for one name', () => {
    const calls = [...bound.calls, starts(40, 3), made(45, 3, 'h2'), ends(46, 3)];
    assert.deepEqual(countViolations({ ...bound, calls }), { double: 1 });
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
