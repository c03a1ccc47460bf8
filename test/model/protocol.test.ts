import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
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

function exploreWith(
  bounds: Bounds,
  rules: Partial<Rules> = {},
  more: Partial<Protocol> = {},
  maxDepth?: number,
): Exploration {
  const protocol = { ...PROTOCOL, bounds, rules: { ...ALL_RULES, ...rules }, ...more };
  return explore(protocol, maxDepth);
}

// npm run test:long -- model searches all states of larger bounds.
describe('the protocol of the volume record, all interleavings', () => {
  const holds = (t: TestContext, leastStates: number, exploration: Exploration): void => {
    const { states, transitions, depth, finding } = exploration;
    t.diagnostic(`${states} states, ${transitions} transitions, depth ${depth}`);
    assert.equal(finding, undefined, finding && [finding.what, ...finding.trace].join('\n  '));
    assert.ok(states > leastStates, 'the space is too small to prove anything');
  };

  it('holds with a death and an unreachable Redis, up to 17 steps', (t) =>
    holds(t, 10_000, exploreWith(SMALL, {}, {}, 17)));

  it('holds when Redis is emptied, up to 15 steps', (t) =>
    holds(t, 10_000, exploreWith(EMPTIED, {}, {}, 15)));

  it('holds when Redis goes back by part of its history, up to 12 steps', (t) =>
    holds(t, 10_000, exploreWith(FAILED_OVER, {}, SERIAL, 12)));

  it('holds when another provisioner leads for a while, up to 14 steps', (t) =>
    holds(t, 10_000, exploreWith(CHANGED_OVER, {}, SERIAL, 14)));

  it('holds without exception when sutler is drained before that, up to 20 steps', (t) => {
    const drained = { ...SERIAL, isDrainedFirst: true, isOpenAtChangeExcused: false };
    holds(t, 10_000, exploreWith(CHANGED_OVER, {}, drained, 20));
  });
});

/** A protocol that breaks one of the properties I1 to I5. */
interface Broken {
  readonly title: string;
  readonly bounds?: Bounds;
  readonly rules?: Partial<Rules>;
  readonly more?: Partial<Protocol>;
  /** What is violated. */
  readonly breaks: RegExp;
  /** What the shortest way to it contains. */
  readonly through?: readonly RegExp[];
}

function finds({ title, bounds = SMALL, rules = {}, more = {}, breaks, through = [] }: Broken) {
  it(title, (t) => {
    const { finding } = exploreWith(bounds, rules, more);
    assert.ok(finding !== undefined, 'no counter-example was found');
    const trace = finding.trace.map((line, at) => `${at + 1}. ${line}`).join('\n');
    t.diagnostic(`${finding.what}\n${trace}`);
    assert.match(finding.what, breaks);
    for (const step of through) assert.match(trace, step);
  });
}

describe('the protocol without one of the record rules', () => {
  finds({
    title: '1, fence: two calls are under way at once',
    rules: { fence: false },
    breaks: /\(I2\)/,
  });
  finds({
    title: '2, take-over: a refusal counts as proof while a dead worker’s call is at work',
    rules: { takeOver: false },
    breaks: /\(I1\)/,
    through: [/dies|gives up/],
  });
  finds({
    title: '3, deadline: a worker that paused sends while its successor does',
    rules: { deadline: false },
    breaks: /\(I2\)/,
  });
  finds({
    title: '4, suspect: a refusal hides a volume that an abandoned call creates',
    rules: { suspect: false },
    breaks: /\(I1\)/,
    through: [/refuses/],
  });
  finds({
    title: '6, lost data: a volume is forgotten with its record',
    bounds: { ...EMPTIED, deaths: 1 },
    rules: { lostData: false },
    breaks: /\(I[12]\)/,
    through: [/Redis is emptied/],
  });
  finds({
    title: '8, opening counts: a volume is forgotten with the record of a failover',
    bounds: FAILED_OVER,
    rules: { openingsAreCounted: false },
    more: SERIAL,
    breaks: /\(I1\)/,
    through: [/Redis goes back to what the replica has/],
  });
  finds({
    title: '9, one provisioner: a run creates again what the other has deleted',
    bounds: CHANGED_OVER,
    rules: { otherLeaderHalts: false },
    more: SERIAL,
    breaks: /\(I3\)/,
    through: [/the other provisioner deletes volume and PV/],
  });
});

describe('the protocol with half a record rule', () => {
  finds({
    title: '2: a record whose owner died stays owned for ever',
    rules: { ownershipEnds: false },
    breaks: /\(I5\)/,
  });
  finds({
    title: '4: a refusal from before the settle time, written after it, hides a volume',
    rules: { refusalCountsFrom: 'close' },
    breaks: /\(I1\)/,
  });
  finds({
    title: '5: a call that was cut creates a volume after its repetition and the deletion',
    rules: { deletionAwaitsLateCalls: false },
    breaks: /\(I3\)/,
  });
  finds({
    title: '6: a worker that opens a record again forgets what it had left open',
    bounds: EMPTIED,
    rules: { memoryIsKept: false },
    breaks: /\(I1\)/,
  });
  finds({
    title: '9: a run that read its claim before the other led creates a deleted volume again',
    bounds: CHANGED_OVER,
    rules: { runsEndWithTheTerm: false },
    more: SERIAL,
    breaks: /\(I3\)/,
  });
});

describe('the protocol does not hold', () => {
  finds({
    title: 'when claim, last worker and record of a volume are all lost',
    bounds: { ...EMPTIED, deaths: 1 },
    more: { isForgettingExcused: false },
    breaks: /\(I1\)/,
    through: [/Redis is emptied/, /dies/, /the claim is deleted/],
  });
  finds({
    title: 'for a volume whose record is open when another provisioner begins to work',
    bounds: CHANGED_OVER,
    more: { ...SERIAL, isOpenAtChangeExcused: false },
    breaks: /\(I3\)/,
  });
  finds({
    title: 'with a driver that refuses to create what it has created',
    more: { isDriverIdempotent: false },
    breaks: /\(I1\)/,
  });
});
