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
  const cases: readonly (readonly [title: string, Given, first: string, begun: string])[] = [
    ['while a leader of ours names this history', {}, MAY, MAY],
    [
      'while the Lease is released, and this history is the last that was named',
      { holder: '' },
      MAY,
      MAY,
    ],
    [
      'while the last leader of ours is dead, and nobody has taken its place',
      { holder: 'sutler_dead' },
      MAY,
      MAY,
    ],
    ['while the leader names another history', { history: '3/other' }, 'unclear', 'unclear'],
    [
      'while a new leader of ours has not named a history yet',
      { holder: 'sutler_b', transitions: 4 },
      'unclear',
      'unclear',
    ],
    ['while no leader has named a history', { history: undefined }, 'unclear', 'unclear'],
    [
      'while another provisioner holds the Lease',
      { holder: OTHER, transitions: 4, otherHolder: OTHER },
      'paused',
      MAY,
    ],
    [
      'while another provisioner was the last to hold the Lease, and its time is over',
      { holder: OTHER, transitions: 4 },
      'paused',
      'unclear',
    ],
    [
      'while another provisioner has released the Lease',
      { holder: '', transitions: 4 },
      'paused',
      MAY,
    ],
    [
      'while another provisioner holds the Lease, which names another history',
      { holder: OTHER, transitions: 4, otherHolder: OTHER, history: '3/other' },
      'paused',
      'unclear',
    ],
    ['while sutler is drained', { drain: DRAIN }, 'paused', MAY],
  ];
  for (const [title, given, first, begun] of cases) {
    it(`that would be the first of its job is ${first} ${title}`, () =>
      assert.equal(judge(seen(given)), first));
    it(`of a job that was begun is ${begun} ${title}`, () =>
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
  it('is none while a sutler holds the Lease', () => assert.equal(pauseOf(seen()), undefined));

  it('is none where there is no Lease', () =>
    assert.equal(pauseOf({ lease: undefined, otherHolder: undefined }), undefined));

  it('names the other provisioner that holds the Lease', () =>
    assert.equal(pauseOf(seen({ otherHolder: OTHER })), "upstream-0 holds the driver's Lease"));

  it('says who has drained sutler', () =>
    assert.equal(pauseOf(seen({ drain: DRAIN })), 'sutler is drained by ann'));

  it('says that another provisioner was the last to hold the Lease', () =>
    assert.match(pauseOf(seen({ holder: OTHER })) ?? '', /was the last to hold/));
});

describe('a Lease', () => {
  const isOurs = (given: Given): boolean => {
    const { lease } = seen(given);
    return lease !== undefined && isOfOurs(lease);
  };
  it('is ours while a sutler holds it', () => assert.equal(isOurs({ transitions: 9 }), true));
  it('is ours after a sutler has released it', () => assert.equal(isOurs({ holder: '' }), true));
  it('is another’s after that has released it', () =>
    assert.equal(isOurs({ holder: '', transitions: 4 }), false));
  it('is another’s while that holds it', () => assert.equal(isOurs({ holder: OTHER }), false));
});

describe('a drain', () => {
  it('is who and when', () =>
    assert.deepEqual(drainOf({ 'sutler.dev/drain': DRAIN }), {
      by: 'ann',
      atMs: Date.UTC(2026, 0, 1),
    }));

  it('is none without the annotation', () => {
    assert.equal(drainOf({}), undefined);
    assert.equal(drainOf(undefined), undefined);
  });

  for (const text of ['', 'true', '{', '[]', '{"by":7,"at":"yesterday"}'])
    it(`is one also with the annotation ${JSON.stringify(text)}, as an operator may write it`, () =>
      assert.deepEqual(drainOf({ 'sutler.dev/drain': text }), { by: 'an operator', atMs: 0 }));
});
