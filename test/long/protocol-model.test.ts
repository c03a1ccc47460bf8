import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { explore, type Search } from '../model/explore.ts';
import type { Rules } from '../model/rules.ts';

describe('the creation protocol loses no volume in any order of steps', () => {
  const holds = (title: string, leastStates: number, search: Search): void => {
    it(title, (t) => {
      const { states, transitions, depth, finding } = explore(search);
      t.diagnostic(`${states} states, ${transitions} transitions, depth ${depth}`);
      assert.equal(finding, undefined, finding && [finding.what, ...finding.trace].join('\n  '));
      assert.ok(states >= leastStates, 'the space is too small to prove anything');
    });
  };

  holds('when a worker crashes and another loses its lock', 100_000, {
    faults: { crashes: 1, lostLocks: 1 },
  });
  holds('when locks are lost twice', 100_000, { faults: { lostLocks: 2 } });
  holds('when workers crash twice, two answers are lost and all of the drop-in dies', 50_000, {
    faults: { crashes: 2, lostAnswers: 2, dropInDeaths: 1 },
  });
  holds('when the leader is replaced twice and a worker crashes', 100_000, {
    faults: { replacedLeaders: 2, crashes: 1 },
  });
  holds('when Redis is emptied and the leader is replaced', 1_500_000, {
    faults: { emptyings: 1, replacedLeaders: 1 },
  });
  holds('when Redis goes back, if handles are made from names', 100_000, {
    faults: { setBacks: 1 },
    isHandleFromName: true,
  });
  holds('when Redis is emptied and an answer is lost, if the driver is serial', 100_000, {
    faults: { emptyings: 1, lostAnswers: 1 },
    isDriverSerial: true,
  });
});

/** Each title says what happens without a rule. The other rules are in test/model. */
describe('a volume is lost (P1) without a rule of the creation protocol', () => {
  const isLost = (title: string, without: keyof Rules, faults: Search['faults'] & object): void => {
    it(title, (t) => {
      const { finding } = explore({ without, faults });
      assert.ok(finding !== undefined, 'no counter-example was found');
      t.diagnostic([finding.what, ...finding.trace].join('\n  '));
      assert.match(finding.what, /^P1:/);
    });
  };

  isLost(
    'J4: a leader that was replaced adds a job after the entry was removed',
    'addingNeedsTerm',
    {
      emptyings: 1,
      replacedLeaders: 1,
    },
  );
  isLost('J5: a deletion is added while the claim is in the journal', 'deletionAwaitsJournal', {
    emptyings: 1,
    lostLocks: 1,
  });
  isLost('M2: a run writes its PV after the doubt is over', 'pvIsWrittenInTime', {
    lostLocks: 1,
    replacedLeaders: 1,
  });
  isLost('D1: a run removes a PV that another run has written since', 'pvIsRemovedByUid', {
    lostLocks: 1,
    replacedLeaders: 1,
  });
});
