import assert from 'node:assert/strict';
import { describe as suite, it } from 'node:test';
import { causeNamed, statusCause } from '#src/explain/causes.ts';
import { describe, type Explanation } from '#src/explain/explain.ts';
import type { RunStatus } from '#src/queue/status.ts';
import { NOW_MS, status } from './run-status.ts';

const FULL = { reason: 'rpc error: code = ResourceExhausted desc = no' };

const nextTry = (own: RunStatus, inMs: number, cause = statusCause(own)): string | undefined => {
  const explanation: Explanation = {
    kind: 'claim',
    uid: 'u',
    object: 'ns/data',
    className: 'c',
    driver: 'd',
    cause,
    sinceMs: NOW_MS,
    nextMs: NOW_MS + inMs,
    status: own,
  };
  return describe(explanation, NOW_MS)['next try'];
};

suite('the next try of a claim', () => {
  it('names the command that has it at once where somebody has to act', () =>
    assert.equal(nextTry(status(FULL), 180_000), 'in 3m, or at once: sutler retry ns/data'));

  it('names no command where nobody has to act', () => {
    const own = status({ outcome: 'later', reason: 'the claim has changed meanwhile' });
    assert.equal(nextTry(own, 180_000), 'in 3m');
  });

  it('names no command during a drain', () =>
    assert.equal(nextTry(status(FULL), 180_000, causeNamed('Drained', 'drained by ann')), 'in 3m'));

  it('names the command in a back-off that nothing else ends', () => {
    const infeasible = { scope: 'class', untilMs: NOW_MS + 180_000 };
    const own = status({ outcome: 'later', reason: 'the driver called it infeasible', infeasible });
    assert.equal(nextTry(own, 180_000), 'in 3m, or at once: sutler retry ns/data');
  });
});
