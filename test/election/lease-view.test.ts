import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  drainOf,
  GRACE_MS,
  isOfOurs,
  judgeCall,
  pauseOf,
  type SeenLease,
} from '#src/election/lease-view.ts';

const HISTORY = 'marker:replid';
const DRAIN = '{"by":"ann","at":"2026-01-01T00:00:00Z"}';
const OTHER = 'upstream-0';

interface Given {
  readonly holder?: string;
  readonly transitions?: number;
  /** The annotation of Redis' history; undefined: none. */
  readonly history?: string | undefined;
  readonly drain?: string;
  readonly otherHolder?: string;
}

function seen(given: Given = {}): SeenLease {
  const { holder = 'sutler_a', transitions = 3, otherHolder, drain } = given;
  const history = 'history' in given ? given.history : `3/${HISTORY}`;
  const times = { durationMs: 15_000, acquiredMs: 0, renewedMs: 0 };
  return {
    lease: {
      record: { holder, transitions, ...times },
      annotations: {
        ...(history === undefined ? {} : { 'sutler.dev/redis-history': history }),
        ...(drain === undefined ? {} : { 'sutler.dev/drain': drain }),
      },
    },
    otherHolder,
  };
}

function judge(view: SeenLease, isBegun = false, nowMs = 2_000, readMs = 1_000): string {
  const verdict = judgeCall(view, { history: HISTORY, isBegun, readMs, nowMs });
  return verdict.kind === 'may' ? `may until ${verdict.untilMs}` : verdict.kind;
}

const MAY = `may until ${1_000 + GRACE_MS}`;

describe('a call', () => {
  const others = { holder: OTHER, transitions: 4 };
  const cases: readonly (readonly [title: string, Given, first: string, begun: string])[] = [
    ['a leader of ours names this history', {}, MAY, MAY],
    ['the Lease is released, and this history was named last', { holder: '' }, MAY, MAY],
    ['the last leader of ours is dead, and no other leads', { holder: 'sutler_dead' }, MAY, MAY],
    ['the leader names another history', { history: '3/other' }, 'unclear', 'unclear'],
    ['a new leader has named no history yet', { transitions: 4 }, 'unclear', 'unclear'],
    ['no leader has named a history', { history: undefined }, 'unclear', 'unclear'],
    ['another provisioner holds the Lease', { ...others, otherHolder: OTHER }, 'paused', MAY],
    ['another provisioner held the Lease last, and its time is over', others, 'paused', 'unclear'],
    ['another provisioner has released the Lease', { ...others, holder: '' }, 'paused', MAY],
    [
      'another provisioner holds the Lease, which names another history',
      { ...others, otherHolder: OTHER, history: '3/other' },
      'paused',
      'unclear',
    ],
    ['sutler is drained', { drain: DRAIN }, 'paused', MAY],
  ];
  for (const [title, given, first, begun] of cases) {
    it(`that would be the first of its job is ${first} while ${title}`, () =>
      assert.equal(judge(seen(given)), first));
    it(`of a job that was begun is ${begun} while ${title}`, () =>
      assert.equal(judge(seen(given), true), begun));
  }

  it('is unclear before the Lease was read', () =>
    assert.equal(judge(seen(), true, 2_000, -Infinity), 'unclear'));

  it('is unclear once the Lease was read 10 s ago, not before', () => {
    assert.equal(judge(seen(), true, 1_000 + GRACE_MS - 1), MAY);
    assert.equal(judge(seen(), true, 1_000 + GRACE_MS), 'unclear');
  });

  it('is unclear where there is no Lease', () =>
    assert.equal(judge({ lease: undefined, otherHolder: undefined }), 'unclear'));
});

describe('the pause of new work', () => {
  for (const [title, given, pause] of [
    ['is none while a sutler holds the Lease', {}, undefined],
    [
      'names the other provisioner that holds the Lease',
      { otherHolder: OTHER },
      "upstream-0 holds the driver's Lease",
    ],
    ['says who has drained sutler', { drain: DRAIN }, 'sutler is drained by ann'],
    [
      'says that another provisioner was the last to hold the Lease',
      { holder: OTHER },
      'another provisioner was the last to hold the driver’s Lease',
    ],
  ] as const)
    it(title, () => assert.equal(pauseOf(seen(given)), pause));

  it('is none where there is no Lease', () =>
    assert.equal(pauseOf({ lease: undefined, otherHolder: undefined }), undefined));
});

describe('a Lease', () => {
  for (const [title, given, isOurs] of [
    ['is ours while a sutler holds it', { transitions: 9 }, true],
    ['is ours after a sutler has released it', { holder: '' }, true],
    ['is another’s after that has released it', { holder: '', transitions: 4 }, false],
    ['is another’s while that holds it', { holder: OTHER }, false],
  ] as const)
    it(title, () => {
      const { lease } = seen(given);
      assert.equal(lease && isOfOurs(lease), isOurs);
    });
});

describe('a drain', () => {
  it('is who and when, and none without the annotation', () => {
    const drain = { by: 'ann', atMs: Date.UTC(2026, 0, 1) };
    assert.deepEqual(drainOf({ 'sutler.dev/drain': DRAIN }), drain);
    assert.equal(drainOf({}), undefined);
  });

  for (const text of ['', 'true', '{', '[]', '{"by":7,"at":"yesterday"}'])
    it(`is one also with the annotation ${JSON.stringify(text)}, as an operator may write it`, () =>
      assert.deepEqual(drainOf({ 'sutler.dev/drain': text }), { by: 'an operator', atMs: 0 }));
});
