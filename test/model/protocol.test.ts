import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { explore, type Exploration } from './explore.ts';
import { type Bounds, type Protocol, PROTOCOL } from './protocol.ts';
import { ALL_RULES, type Rules } from './record.ts';

const SMALL: Bounds = { deaths: 1, emptyings: 0, failovers: 0, flips: 0, changes: 0, calls: 2 };
const EMPTIED: Bounds = { ...SMALL, deaths: 0, emptyings: 1 };
const FAILED_OVER: Bounds = { ...SMALL, deaths: 0, failovers: 1 };
/** Another provisioner takes the Lease, and one of ours has it again later. */
const CHANGED_OVER: Bounds = { ...SMALL, deaths: 0, changes: 1 };
/** Promised only with such a driver where another provisioner deletes volumes, and before a loss of
 * the latest writes is noticed. */
const SERIAL = { doesDriverSerialise: true };
const EMPTIED_DEPTH = 21;
const DEPTH = 18;
const CHANGED_OVER_DEPTH = 20;

function exploreWith(
  bounds: Bounds,
  rules: Partial<Rules> = {},
  more: Partial<Protocol> = {},
  maxDepth?: number,
): Exploration {
  const protocol = { ...PROTOCOL, bounds, rules: { ...ALL_RULES, ...rules }, ...more };
  return explore(protocol, maxDepth);
}

/** Asserts that the whole space was searched without a finding, and reports its size. */
function assertHolds(exploration: Exploration, report: (text: string) => void): void {
  const { states, transitions, depth, finding } = exploration;
  report(`${states} states, ${transitions} transitions, depth ${depth}`);
  assert.equal(finding, undefined, finding && [finding.what, ...finding.trace].join('\n  '));
  assert.ok(states > 100_000, 'the space is too small to prove anything');
}

/** Asserts that the named violation was found, and reports the shortest way to it. */
function assertFails(
  exploration: Exploration,
  violation: RegExp,
  report: (text: string) => void,
): readonly string[] {
  const { finding } = exploration;
  assert.ok(finding !== undefined, 'no counter-example was found');
  report([finding.what, ...finding.trace.map((line, at) => `${at + 1}. ${line}`)].join('\n'));
  assert.match(finding.what, violation);
  return finding.trace;
}

describe('the protocol of the volume record, all interleavings', () => {
  it('holds with a death, an unreachable Redis and a change of policy', (t) =>
    assertHolds(exploreWith({ ...SMALL, flips: 1 }), (text) => t.diagnostic(text)));

  // All states of these three: npm run test:long -- model.
  it(`holds when Redis is emptied, up to ${EMPTIED_DEPTH} steps`, (t) =>
    assertHolds(exploreWith(EMPTIED, {}, {}, EMPTIED_DEPTH), (text) => t.diagnostic(text)));

  it(`holds when Redis goes back by part of its history, up to ${DEPTH} steps`, (t) =>
    assertHolds(exploreWith(FAILED_OVER, {}, SERIAL, DEPTH), (text) => t.diagnostic(text)));

  it(`holds when another provisioner leads for a while, up to ${CHANGED_OVER_DEPTH} steps`, (t) =>
    assertHolds(exploreWith(CHANGED_OVER, {}, SERIAL, CHANGED_OVER_DEPTH), (text) =>
      t.diagnostic(text),
    ));

  it('holds without exception when sutler is drained before that', (t) => {
    const drained = { ...SERIAL, isDrainedFirst: true, isOpenAtChangeExcused: false };
    assertHolds(exploreWith(CHANGED_OVER, {}, drained), (text) => t.diagnostic(text));
  });

  describe('without one of the record rules', () => {
    it('1, fence: two calls are under way at once', (t) => {
      assertFails(exploreWith(SMALL, { fence: false }), /\(I2\)/, (text) => t.diagnostic(text));
    });

    it('2, take-over: a refusal counts as proof while a dead worker’s call is at work', (t) => {
      const trace = assertFails(exploreWith(SMALL, { takeOver: false }), /\(I1\)/, (text) =>
        t.diagnostic(text),
      );
      assert.ok(trace.some((line) => /dies|gives up/.test(line)));
    });

    it('3, deadline: a worker that paused sends while its successor does', (t) => {
      assertFails(exploreWith(SMALL, { deadline: false }), /\(I2\)/, (text) => t.diagnostic(text));
    });

    it('4, suspect: a refusal hides a volume that an abandoned call creates', (t) => {
      const trace = assertFails(exploreWith(SMALL, { suspect: false }), /\(I1\)/, (text) =>
        t.diagnostic(text),
      );
      assert.ok(trace.some((line) => line.includes('refuses')));
    });

    it('5, resolve: an abandoned call creates the volume again after its deletion', (t) => {
      const rules = { resolve: false, deletionAwaitsLateCalls: false };
      assertFails(exploreWith(SMALL, rules, SERIAL), /\(I3\)/, (text) => t.diagnostic(text));
    });

    it('8, opening counts: a volume is forgotten with the record of a failover', (t) => {
      const trace = assertFails(
        exploreWith(FAILED_OVER, { openingsAreCounted: false }, SERIAL),
        /\(I1\)/,
        (text) => t.diagnostic(text),
      );
      assert.ok(trace.includes('Redis goes back to what the replica has'));
    });

    it('9, one provisioner: a run creates again what the other has deleted', (t) => {
      const trace = assertFails(
        exploreWith(CHANGED_OVER, { otherLeaderHalts: false }, SERIAL),
        /\(I3\)/,
        (text) => t.diagnostic(text),
      );
      assert.ok(trace.includes('the other provisioner deletes volume and PV'));
    });

    it('6, lost data: a volume is forgotten with its record', (t) => {
      const trace = assertFails(
        exploreWith({ ...EMPTIED, deaths: 1 }, { lostData: false }),
        /\(I[12]\)/,
        (text) => t.diagnostic(text),
      );
      assert.ok(trace.includes('Redis is emptied'));
    });
  });

  describe('with half a record rule', () => {
    it('2: a record whose owner died stays owned for ever', (t) => {
      assertFails(exploreWith(SMALL, { ownershipEnds: false }), /\(I5\)/, (text) =>
        t.diagnostic(text),
      );
    });

    it('4: a refusal from before the settle time, written after it, hides a volume', (t) => {
      assertFails(exploreWith(SMALL, { refusalCountsFrom: 'close' }), /\(I1\)/, (text) =>
        t.diagnostic(text),
      );
    });

    it('5: a call that was cut creates a volume after its repetition and the deletion', (t) => {
      assertFails(exploreWith(SMALL, { deletionAwaitsLateCalls: false }), /\(I3\)/, (text) =>
        t.diagnostic(text),
      );
    });

    it('6: a run that read its claim before the loss creates a deleted volume again', (t) => {
      assertFails(exploreWith(EMPTIED, { runsEndWithTheDataEpoch: false }), /\(I3\)/, (text) =>
        t.diagnostic(text),
      );
    });

    it('9: a run that read its claim before the other led creates a deleted volume again', (t) => {
      assertFails(
        exploreWith(CHANGED_OVER, { runsEndWithTheTerm: false }, SERIAL),
        /\(I3\)/,
        (text) => t.diagnostic(text),
      );
    });

    it('6: a worker that opens a record again forgets what it had left open', (t) => {
      assertFails(exploreWith(EMPTIED, { memoryIsKept: false }), /\(I1\)/, (text) =>
        t.diagnostic(text),
      );
    });

    it('6: a worker that does not rewrite in time creates a deleted volume again', (t) => {
      assertFails(exploreWith(EMPTIED, { areRecordsRewrittenInTime: false }), /\(I3\)/, (text) =>
        t.diagnostic(text),
      );
    });
  });

  describe('does not hold', () => {
    it('when claim, last worker and record of a volume are all lost', (t) => {
      const bounds = { ...EMPTIED, deaths: 1 };
      const trace = assertFails(
        exploreWith(bounds, {}, { isForgettingExcused: false }),
        /\(I1\)/,
        (text) => t.diagnostic(text),
      );
      for (const loss of [/Redis is emptied/, /dies/, /the claim is deleted/])
        assert.ok(
          trace.some((line) => loss.test(line)),
          String(loss),
        );
    });

    it('for a volume whose record is open when another provisioner begins to work', (t) => {
      assertFails(
        exploreWith(CHANGED_OVER, {}, { ...SERIAL, isOpenAtChangeExcused: false }),
        /\(I3\)/,
        (text) => t.diagnostic(text),
      );
    });

    it('with a driver that refuses to create what it has created', (t) => {
      assertFails(exploreWith(SMALL, {}, { isDriverIdempotent: false }), /\(I1\)/, (text) =>
        t.diagnostic(text),
      );
    });
  });
});
