import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { seeded } from '../harness/seeded.ts';
import { canonical } from './canonical.ts';
import { explore, type Search } from './explore.ts';
import { findViolation, isSettled, listSteps } from './protocol.ts';
import { ALL_RULES, type Rules } from './rules.ts';
import { copyOf, initialState, keyOf, type State } from './state.ts';
import type { Model, Step } from './steps.ts';

describe('the creation protocol loses no volume in any order of steps', () => {
  const holds = (title: string, leastStates: number, search: Search): void => {
    it(title, (t) => {
      const { states, transitions, depth, finding } = explore(search);
      t.diagnostic(`${states} states, ${transitions} transitions, depth ${depth}`);
      assert.equal(finding, undefined, finding && [finding.what, ...finding.trace].join('\n  '));
      assert.ok(states >= leastStates, 'the space is too small to prove anything');
    });
  };

  // Each search has the states with fewer of its faults too.
  holds('when Redis goes back to an earlier state', 15_000, { faults: { setBacks: 1 } });
  holds('when a worker crashes and another loses its lock', 25_000, {
    faults: { crashes: 1, lostLocks: 1 },
  });
  holds('when locks are lost twice', 15_000, { faults: { lostLocks: 2 } });
  holds('when workers crash twice, two answers are lost and all of the drop-in dies', 20_000, {
    faults: { crashes: 2, lostAnswers: 2, dropInDeaths: 1 },
  });
  holds('when the leader is replaced twice and a worker crashes', 45_000, {
    faults: { replacedLeaders: 2, crashes: 1 },
  });
  holds('when Redis is emptied and the leader is replaced', 130_000, {
    faults: { emptyings: 1, replacedLeaders: 1 },
  });
  holds('when Redis goes back, if handles are made from names', 15_000, {
    faults: { setBacks: 1 },
    isHandleFromName: true,
  });
  holds('when Redis is emptied and an answer is lost, if the driver is serial', 30_000, {
    faults: { emptyings: 1, lostAnswers: 1 },
    isDriverSerial: true,
  });

  it('and states count as one only if the same can happen from them', () => {
    const random = seeded(1);
    const oneOf = <T>(list: readonly T[]): T | undefined =>
      list[Math.floor(random() * list.length)];
    const rules = Object.keys(ALL_RULES) as readonly (keyof Rules)[];
    for (let walk = 0; walk < 300; walk++) {
      const without = oneOf(rules) ?? 'journalFirst';
      const model = {
        rules: { ...ALL_RULES, [without]: walk % 2 === 0 },
        isHandleFromName: false,
        isDriverSerial: false,
      };
      let state = initialState(MANY_FAULTS);
      for (let step: Step | undefined; ; { state } = step) {
        const steps = listSteps(model, state);
        const other = canonical(copyOf(state));
        assert.deepEqual(whatFollows(other, model), whatFollows(state, model));
        step = oneOf(steps);
        if (step === undefined || findViolation(step.state) !== undefined) break;
      }
    }
  });
});

const MANY_FAULTS = {
  crashes: 2,
  lostLocks: 2,
  lostAnswers: 2,
  emptyings: 1,
  setBacks: 2,
  replacedLeaders: 3,
  dropInDeaths: 1,
};

/** A tick may end nothing but periods that count no more. */
function whatFollows(from: State, model: Model): readonly string[] {
  const own = keyOf(canonical(copyOf(from)));
  const found = listSteps(model, from).flatMap(({ isProgress, state }) => {
    const facts = [isProgress, findViolation(state), isSettled(state)];
    const key = keyOf(canonical(copyOf(state)));
    return key === own ? [] : [JSON.stringify([...facts, key])];
  });
  return [...new Set(found)].toSorted();
}

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
  isLost('J4: a leader that was replaced adds a job after the entry was removed', {
    without: 'addingNeedsTerm',
    faults: { emptyings: 1, replacedLeaders: 1 },
    steps: 27,
  });
  isLost('J5: a deletion is added while the claim is in the journal', {
    without: 'deletionAwaitsJournal',
    faults: { emptyings: 1, lostLocks: 1 },
    steps: 50,
  });
  isLost('M2: a run writes its PV after the doubt is over', {
    without: 'pvIsWrittenInTime',
    faults: { lostLocks: 1, replacedLeaders: 1 },
    steps: 60,
  });
  isLost('D1: a run removes a PV that another run has written since', {
    without: 'pvIsRemovedByUid',
    faults: { lostLocks: 1, replacedLeaders: 1 },
    steps: 50,
  });
});
