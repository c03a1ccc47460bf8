import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { describeSkew, GatewayClock } from '#src/gateway-client/gateway-clock.ts';
import { systemClock } from '#src/runtime/clock.ts';

/** A clock of this process that can be set, and what is learned by it. */
function learner(): { clock: GatewayClock; set: (ms: number) => void; answer: AnswerAfter } {
  let offMs = 0;
  const nowMs = (): number => Date.now() + offMs;
  const clock = new GatewayClock({ ...systemClock, nowMs });
  return {
    clock,
    set: (ms) => (offMs = ms),
    answer: (aheadMs, roundTripMs) =>
      clock.learn(nowMs() - roundTripMs, String(Date.now() + aheadMs)),
  };
}
type AnswerAfter = (aheadMs: number, roundTripMs: number) => void;

const isNear = (actual: number | undefined, expected: number): void =>
  assert.ok(Math.abs((actual ?? NaN) - expected) < 50, `${actual}, not ${expected}`);

describe('GatewayClock', () => {
  it('is outdated before the first answer, for a minute not after it', () => {
    const { clock, answer } = learner();
    assert.ok(clock.isOutdated);
    answer(60_000, 5);
    assert.ok(!clock.isOutdated);
    isNear(clock.aheadMs, 60_000);
  });

  it('keeps what it knows when an answer was delayed on its way back', () => {
    const { clock, answer } = learner();
    answer(60_000, 5);
    // Taken by the gateway 500 ms before it arrived.
    answer(59_500, 600);
    isNear(clock.aheadMs, 60_000);
  });

  it('follows a gateway whose clock is set, forward and back', () => {
    const { clock, answer } = learner();
    for (const aheadMs of [0, 60_000, -60_000]) {
      answer(aheadMs, 5);
      isNear(clock.aheadMs, aheadMs);
    }
  });

  it('follows it by the answer to a call that took long, too', () => {
    const { clock, answer } = learner();
    answer(0, 5);
    answer(-5_000, 10_000);
    isNear(clock.aheadMs, -5_000);
  });

  it('is outdated when the clock of this process is set', () => {
    const { clock, answer, set } = learner();
    answer(0, 5);
    set(60_000);
    assert.ok(clock.isOutdated);
  });

  it('knows nothing of a gateway that sends no time, and does not ask it for each call', () => {
    const { clock, answer } = learner();
    answer(60_000, 5);
    clock.learn(Date.now(), undefined);
    assert.equal(clock.aheadMs, undefined);
    assert.ok(!clock.isOutdated);
  });
});

describe('describeSkew', () => {
  it('names the gateway whose clock is furthest off, by seconds', () => {
    const text = describeSkew([
      { address: 'a', aheadMs: 3_000 },
      { address: 'b', aheadMs: -60_400 },
      { address: 'c', aheadMs: undefined },
    ]);
    assert.match(text ?? '', /^the clock of the gateway b is 60 s behind this process’s/);
  });

  it('says nothing of less than 2 s', () => {
    assert.equal(describeSkew([{ address: 'a', aheadMs: -1_999 }]), undefined);
  });
});
