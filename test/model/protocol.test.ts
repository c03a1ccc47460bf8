import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { explore, type Search } from './explore.ts';
import type { Rules } from './rules.ts';

// npm run test:long -- protocol-model searches with more faults.
describe('the creation protocol loses no volume in any order of steps', () => {
  const holds = (title: string, leastStates: number, search: Search): void => {
    it(title, (t) => {
      const { states, transitions, depth, finding } = explore(search);
      t.diagnostic(`${states} states, ${transitions} transitions, depth ${depth}`);
      assert.equal(finding, undefined, finding && [finding.what, ...finding.trace].join('\n  '));
      assert.ok(states >= leastStates, 'the space is too small to prove anything');
    });
  };

  holds('without a fault', 400, {});
  holds('when a worker crashes', 2_000, { faults: { crashes: 1 } });
  holds('when a worker that is alive loses the lock of its job', 20_000, {
    faults: { lostLocks: 1 },
  });
  holds('when an answer is lost, or a call is cut and stays at work', 2_000, {
    faults: { lostAnswers: 1 },
  });
  holds('when Redis is emptied', 60_000, { faults: { emptyings: 1 } });
  holds('when Redis goes back to an earlier state', 100_000, { faults: { setBacks: 1 } });
  holds('when the leader is replaced and takes one more step', 10_000, {
    faults: { replacedLeaders: 1 },
  });
  holds('when all of the drop-in dies, after a crash and a lost answer', 30_000, {
    faults: { dropInDeaths: 1, crashes: 1, lostAnswers: 1 },
  });
});

/** A search that finds that a volume is lost. */
interface Broken extends Search {
  readonly without: keyof Rules;
  /** How many steps the shortest way to it has. */
  readonly steps: number;
}

/** Each title says what happens without a rule. */
describe('a volume is lost (P1) without a rule of the creation protocol', () => {
  const isLost = (title: string, { steps, ...search }: Broken): void => {
    it(title, (t) => {
      const { finding } = explore(search);
      assert.ok(finding !== undefined, 'no counter-example was found');
      t.diagnostic([finding.what, ...finding.trace].join('\n  '));
      assert.match(finding.what, /^P1:/);
      assert.equal(finding.trace.length, steps);
    });
  };

  isLost('J1: a job whose claim is in no journal is lost with Redis', {
    without: 'journalFirst',
    faults: { dropInDeaths: 1 },
    steps: 9,
  });
  isLost('J2: an entry leaves as its claim is gone, and the job is lost with Redis', {
    without: 'entryLeavesWhenFinished',
    faults: { dropInDeaths: 1 },
    steps: 13,
  });
  isLost('J2: a job that an earlier history of Redis finished removes the entry', {
    without: 'finishedCountsInItsHistory',
    faults: { setBacks: 1 },
    steps: 21,
  });
  isLost('J3: a leader that begins adds no job for an entry in the journal', {
    without: 'leaderListsJournal',
    faults: { dropInDeaths: 1 },
    steps: 24,
  });
  isLost('J3: the job of a listed entry finishes, although a call was begun before', {
    without: 'listedJobsBeginInDoubt',
    faults: { dropInDeaths: 1 },
    steps: 21,
  });
  isLost('J3: the doubt of a listed entry ends before a call that is sent late in its grace', {
    without: 'doubtIncludesGrace',
    faults: { emptyings: 1, lostAnswers: 1 },
    steps: 27,
  });
  isLost('J3: a leader adds no job again after Redis was emptied', {
    without: 'journalAgainAfterChange',
    faults: { emptyings: 1 },
    steps: 24,
  });
  isLost('J4, M1: a run of an earlier history calls the driver', {
    without: 'otherHistoryIsDropped',
    faults: { setBacks: 1 },
    steps: 37,
  });
  isLost('M1: the next run does not know that a call was begun', {
    without: 'markSetsUntil',
    steps: 20,
  });
  isLost('M1: a run that lost its job calls the driver beside the next run', {
    without: 'markNeedsLock',
    faults: { lostLocks: 1 },
    steps: 21,
  });
  isLost('M2: a call is sent long after its mark', {
    without: 'callIsSentInGrace',
    faults: { crashes: 1 },
    steps: 26,
  });
  isLost('M3: a success whose PV is not written takes the mark back', {
    without: 'successKeepsUntil',
    steps: 20,
  });
  isLost('M3: an unknown end takes the mark back', {
    without: 'unknownEndKeepsUntil',
    faults: { lostAnswers: 1 },
    steps: 17,
  });
  isLost('M4: a run finishes the job that another run has taken', {
    without: 'finishNeedsLock',
    faults: { lostLocks: 1 },
    steps: 23,
  });
  isLost('M4: the volume is deleted while an abandoned call is at work, which creates it again', {
    without: 'finishAwaitsDoubt',
    faults: { crashes: 1 },
    steps: 31,
  });
  isLost('R5: a refusal finishes the job while an abandoned call is at work', {
    without: 'refusalInDoubtProvesNothing',
    faults: { crashes: 1 },
    steps: 26,
  });
  isLost('R6: an unknown end finishes the job of a claim that is gone', {
    without: 'unknownEndIsRetried',
    faults: { lostAnswers: 1 },
    steps: 25,
  });
});
