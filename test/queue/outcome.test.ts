import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { pollDelayMs, requeueDelayMs, retryDelayMs } from '#src/queue/outcome.ts';
import { seeded } from '../harness/seeded.ts';

const backoff = { startMs: 1000, maxMs: 300_000 };

describe('retryDelayMs', () => {
  it('doubles on average from start to max', () => {
    const averages = [1, 2, 3, 4, 9, 10, 30, 1100].map((attempt) =>
      retryDelayMs(attempt, backoff, 0.5),
    );
    assert.deepEqual(averages, [1000, 2000, 4000, 8000, 256_000, 300_000, 300_000, 300_000]);
  });

  it('is up to a quarter shorter or longer', () => {
    assert.deepEqual([retryDelayMs(4, backoff, 0), retryDelayMs(4, backoff, 1)], [6_000, 10_000]);
    assert.equal(retryDelayMs(20, backoff, 1), 375_000);
  });

  it('is never shorter than the minimum that is asked for', () => {
    assert.equal(retryDelayMs(1, backoff, 0, 300_000), 300_000);
    assert.equal(retryDelayMs(10, backoff, 0.5, 5), 300_000);
  });

  /** Calls in a day for each of 100 keys that always fail; a call takes no time. */
  const callsADay = (minDelayMs: number): number[] => {
    const random = seeded(1);
    return Array.from({ length: 100 }, () => {
      let calls = 0;
      for (let atMs = 0; atMs < 86_400_000; calls += 1)
        atMs += retryDelayMs(calls + 1, backoff, random(), minDelayMs);
      return calls;
    });
  };
  const average = (counts: readonly number[]): number =>
    counts.reduce((sum, count) => sum + count, 0) / counts.length;

  it('leads to as many calls a day as upstream’s, 296', () => {
    const calls = callsADay(0);
    assert.ok(Math.abs(average(calls) - 296) < 2, `${average(calls)} on average`);
    assert.ok(Math.min(...calls) >= 280 && Math.max(...calls) <= 312, calls.join());
  });

  it('leads to no more calls a day than upstream’s for an infeasible request, 288', () => {
    assert.ok(Math.max(...callsADay(backoff.maxMs)) <= 288);
  });
});

describe('pollDelayMs', () => {
  it('grows as a retry does and stays in the upper half', () => {
    const poll = { startMs: 1000, maxMs: 30_000 };
    assert.deepEqual(
      [1, 2, 6, 20].map((attempt) => pollDelayMs(attempt, poll, 0)),
      [500, 1000, 15_000, 15_000],
    );
    assert.deepEqual(
      [1, 2, 6, 20].map((attempt) => pollDelayMs(attempt, poll, 1)),
      [1000, 2000, 30_000, 30_000],
    );
  });
});

describe('requeueDelayMs', () => {
  const ceilings = (outcome: Parameters<typeof requeueDelayMs>[0]): readonly number[] =>
    [1, 2, 20].map((runs) => requeueDelayMs(outcome, runs, backoff, 1));

  it('repeats a run that did not reach the driver after 0.5 s to 30 s', () => {
    assert.deepEqual(ceilings({ kind: 'later', reason: 'x' }), [500, 1000, 30_000]);
  });

  it('waits as long as the outcome asks for, and up to half as much again', () => {
    const wait = (delayMs: number, random: number): number =>
      requeueDelayMs({ kind: 'later', reason: 'x', delayMs }, 20, backoff, random);
    assert.deepEqual(
      [0, 0.5, 1].map((random) => wait(40_000, random)),
      [40_000, 50_000, 60_000],
    );
    assert.equal(wait(600_000, 1), 630_000, 'half a minute longer at most');
    assert.equal(wait(39_999.2, 0), 40_000, 'never shorter');
    assert.equal(wait(0, 1), 1, 'at once');
  });

  it('repeats a run after 0.5 s to 1 s while the gateway is full', () => {
    const full = { kind: 'later', reason: 'x', isGatewayFull: true } as const;
    assert.deepEqual(ceilings(full), [1000, 1000, 1000]);
    assert.equal(requeueDelayMs(full, 20, backoff, 0), 500);
  });

  it('polls a driver that is still at work', () => {
    assert.deepEqual(ceilings({ kind: 'running', reason: 'x' }), [1000, 2000, 30_000]);
  });

  it('polls what has ended in 2 s for sure after 3 s at the latest', () => {
    const running = { kind: 'running', reason: 'x', delayMs: 2_000 } as const;
    assert.deepEqual(ceilings(running), [1000, 2000, 3_000]);
    assert.equal(requeueDelayMs(running, 20, backoff, 0), 2_000);
  });

  for (const kind of ['later', 'running'] as const)
    it(`waits no longer than the longest delay after a failure: ${kind}`, () => {
      const short = { startMs: 10, maxMs: 5_000 };
      assert.equal(requeueDelayMs({ kind, reason: 'x' }, 20, short, 1), 5_000);
    });

  it('parks for the longest delay and up to a tenth more', () => {
    assert.deepEqual(ceilings({ kind: 'parked', reason: 'x' }), [330_000, 330_000, 330_000]);
    assert.equal(requeueDelayMs({ kind: 'parked', reason: 'x' }, 1, backoff, 0), 300_000);
  });
});
