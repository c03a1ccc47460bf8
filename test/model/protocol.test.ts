import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Exploration } from './explore.ts';
import { explore } from './explore.ts';
import type { Bounds, Protocol } from './protocol.ts';
import { ALL_RULES } from './record.ts';
import type { Rules } from './record.ts';

const SMALL: Bounds = { deaths: 1, emptyings: 0, flips: 0, calls: 2 };
const EMPTIED: Bounds = { deaths: 0, emptyings: 1, flips: 0, calls: 2 };

function explored(
  bounds: Bounds,
  rules: Partial<Rules> = {},
  more: Partial<Protocol> = {},
): Exploration {
  return explore({
    bounds,
    rules: { ...ALL_RULES, ...rules },
    isDriverIdempotent: true,
    isForgettingExcused: true,
    ...more,
  });
}

/** The whole space was seen and nothing was found; says how large it was. */
function holds(exploration: Exploration, say: (text: string) => void): void {
  const { states, transitions, depth, finding } = exploration;
  say(`${states} states, ${transitions} transitions, depth ${depth}`);
  assert.equal(finding, undefined, finding && [finding.what, ...finding.trace].join('\n  '));
  assert.ok(states > 100_000, 'the space is too small to prove anything');
}

/** The shortest way to the named violation. */
function fails(
  exploration: Exploration,
  violation: RegExp,
  say: (text: string) => void,
): readonly string[] {
  const { finding } = exploration;
  assert.ok(finding !== undefined, 'no counter-example was found');
  say([finding.what, ...finding.trace.map((line, at) => `${at + 1}. ${line}`)].join('\n'));
  assert.match(finding.what, violation);
  return finding.trace;
}

describe('the protocol of the volume record, all interleavings', () => {
  it('holds with a death, an unreachable Redis and a change of policy', (t) =>
    holds(explored({ ...SMALL, flips: 1 }), (text) => t.diagnostic(text)));

  it('holds when Redis is emptied', (t) => holds(explored(EMPTIED), (text) => t.diagnostic(text)));

  describe('without one of its rules', () => {
    it('1, the fence, two calls are under way at once', (t) => {
      fails(explored(SMALL, { fence: false }), /\(I2\)/, (text) => t.diagnostic(text));
    });

    it('2, the take-over, a refusal passes for a proof although a dead worker’s call is at work', (t) => {
      const trace = fails(explored(SMALL, { takeOver: false }), /\(I1\)/, (text) =>
        t.diagnostic(text),
      );
      assert.ok(trace.some((line) => /dies|gives up/.test(line)));
    });

    it('3, the deadline, a worker that stood still sends beside its successor', (t) => {
      fails(explored(SMALL, { deadline: false }), /\(I2\)/, (text) => t.diagnostic(text));
    });

    it('4, suspicion, a refusal hides a volume that a call left behind makes', (t) => {
      const trace = fails(explored(SMALL, { suspicion: false }), /\(I1\)/, (text) =>
        t.diagnostic(text),
      );
      assert.ok(trace.some((line) => line.includes('refuses')));
    });

    it('5, resolve before destroying, a call left behind makes the volume again after its deletion', (t) => {
      fails(explored(SMALL, { resolve: false }), /\(I3\)/, (text) => t.diagnostic(text));
    });

    it('6, the emptied Redis, a volume is forgotten with the record', (t) => {
      const trace = fails(
        explored({ ...EMPTIED, deaths: 1 }, { emptied: false }),
        /\(I[12]\)/,
        (text) => t.diagnostic(text),
      );
      assert.ok(trace.includes('Redis is emptied'));
    });
  });

  describe('with a rule half kept', () => {
    it('2: a record whose owner died is held for ever', (t) => {
      fails(explored(SMALL, { ownershipEnds: false }), /\(I5\)/, (text) => t.diagnostic(text));
    });

    it('4: a refusal that came before the settle time but is written after it hides a volume', (t) => {
      fails(explored(SMALL, { refusalCountsFrom: 'close' }), /\(I1\)/, (text) =>
        t.diagnostic(text),
      );
    });

    it('6: a run that read its claim before the emptying makes the volume again after its deletion', (t) => {
      fails(explored(EMPTIED, { runsEndWithTheIncarnation: false }), /\(I3\)/, (text) =>
        t.diagnostic(text),
      );
    });

    it('6: a worker that opens anew forgets what it had left open', (t) => {
      fails(explored(EMPTIED, { memoryIsKept: false }), /\(I1\)/, (text) => t.diagnostic(text));
    });

    it('6: a worker that does not look after what it left open makes a deleted volume again', (t) => {
      fails(explored(EMPTIED, { areRecordsRewrittenInTime: false }), /\(I3\)/, (text) =>
        t.diagnostic(text),
      );
    });
  });

  describe('can’t promise', () => {
    it('a volume whose claim, last worker and record are all lost', (t) => {
      const bounds = { ...EMPTIED, deaths: 1 };
      const trace = fails(explored(bounds, {}, { isForgettingExcused: false }), /\(I1\)/, (text) =>
        t.diagnostic(text),
      );
      for (const loss of [/Redis is emptied/, /dies/, /the claim is deleted/])
        assert.ok(
          trace.some((line) => loss.test(line)),
          String(loss),
        );
    });

    it('anything with a driver that refuses to create what it has made', (t) => {
      fails(explored(SMALL, {}, { isDriverIdempotent: false }), /\(I1\)/, (text) =>
        t.diagnostic(text),
      );
    });
  });
});
