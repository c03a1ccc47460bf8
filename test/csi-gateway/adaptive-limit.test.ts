import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { AdaptiveLimit } from '#src/csi-gateway/adaptive-limit.ts';

/** Simulates a driver that works on `workers` calls at once and lets the others wait. Makes calls
 * in rounds, each with as many calls as the limit allows. */
function simulate(
  limit: AdaptiveLimit,
  options: {
    readonly workers: number;
    readonly callMs: number;
    readonly rounds: number;
    readonly code?: number;
  },
): void {
  let nowMs = 0;
  for (let round = 0; round < options.rounds; round += 1) {
    const running = limit.limit;
    const startedMs = nowMs;
    for (let call = 0; call < running; call += 1) {
      const endedMs = startedMs + options.callMs * Math.ceil((call + 1) / options.workers);
      limit.observe({ startedMs, endedMs, code: options.code ?? Code.OK }, running - call);
      nowMs = Math.max(nowMs, endedMs);
    }
    nowMs += 1;
  }
}

describe('AdaptiveLimit', () => {
  it('grows by about one per round of OK answers, up to its maximum', () => {
    const limit = new AdaptiveLimit({ start: 10, max: 14 });
    for (let call = 0; call < 11; call += 1)
      limit.observe({ startedMs: call, endedMs: call + 10, code: Code.OK }, 10);
    assert.equal(limit.limit, 11);
    for (let call = 0; call < 1_000; call += 1)
      limit.observe({ startedMs: call, endedMs: call + 10, code: Code.OK }, 14);
    assert.equal(limit.limit, 14);
  });

  it('does not grow while it is not fully used', () => {
    const limit = new AdaptiveLimit({ start: 10, max: 100 });
    for (let call = 0; call < 1_000; call += 1)
      limit.observe({ startedMs: call, endedMs: call + 10, code: Code.OK }, 3);
    assert.equal(limit.limit, 10);
  });

  for (const code of [Code.ResourceExhausted, Code.Unavailable, Code.DeadlineExceeded]) {
    it(`shrinks by a third for code ${code}, once per round, and never below 1`, () => {
      const limit = new AdaptiveLimit({ start: 10, max: 100 });
      for (let call = 0; call < 10; call += 1)
        limit.observe({ startedMs: 0, endedMs: 10 + call, code }, 10);
      assert.equal(limit.limit, 7);
      limit.observe({ startedMs: 20, endedMs: 30, code }, 7);
      assert.equal(limit.limit, 4);
      for (let call = 0; call < 50; call += 1)
        limit.observe({ startedMs: 100 * (call + 1), endedMs: 100 * (call + 1) + 50, code }, 1);
      assert.equal(limit.limit, 1);
    });
  }

  it('ignores other errors', () => {
    const limit = new AdaptiveLimit({ start: 10, max: 100 });
    for (const code of [Code.InvalidArgument, Code.NotFound, Code.Aborted, Code.Internal])
      limit.observe({ startedMs: 0, endedMs: 1, code }, 10);
    assert.equal(limit.limit, 10);
  });

  it('shrinks when calls take twice as long as usual', () => {
    const limit = new AdaptiveLimit({ start: 50, max: 100 });
    for (let call = 0; call < 100; call += 1)
      limit.observe({ startedMs: call, endedMs: call + 200, code: Code.OK }, 5);
    assert.equal(limit.limit, 50);
    for (let call = 0; call < 20; call += 1)
      limit.observe({ startedMs: 1_000 + call, endedMs: 2_500 + call, code: Code.OK }, 5);
    assert.ok(limit.limit < 50, String(limit.limit));
  });

  it('grows again when slow calls have become usual', () => {
    const limit = new AdaptiveLimit({ start: 50, max: 100 });
    for (let call = 0; call < 100; call += 1)
      limit.observe({ startedMs: call, endedMs: call + 200, code: Code.OK }, 5);
    simulate(limit, { workers: 1_000, callMs: 1_000, rounds: 500 });
    assert.ok(limit.limit > 20, String(limit.limit));
  });

  it('shrinks to what a driver with few workers can handle', () => {
    const limit = new AdaptiveLimit({ start: 100, max: 500 });
    for (let call = 0; call < 200; call += 1)
      limit.observe({ startedMs: call, endedMs: call + 100, code: Code.OK }, 1);
    simulate(limit, { workers: 10, callMs: 100, rounds: 60 });
    assert.ok(limit.limit >= 5 && limit.limit <= 60, String(limit.limit));
  });
});
