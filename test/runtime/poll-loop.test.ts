import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '#src/runtime/clock.ts';
import { PollLoop, type PollLoopOptions } from '#src/runtime/poll-loop.ts';
import { until } from '../harness/until.ts';

const NEVER_MS = 600_000;

describe('PollLoop', () => {
  const start = (options: Partial<PollLoopOptions>): PollLoop =>
    new PollLoop({
      step: () => Promise.resolve(),
      onError: () => assert.fail('no step rejects'),
      periodMs: NEVER_MS,
      clock: systemClock,
      ...options,
    });

  it('runs the first step at once, and others after the period', async () => {
    let steps = 0;
    const loop = start({ step: async () => void (steps += 1), periodMs: 1 });
    assert.equal(steps, 1);
    await until(() => steps > 2, 'later steps');
    await loop.stop();
  });

  it('pauses as long as a step returns', async () => {
    let steps = 0;
    const loop = start({ step: () => Promise.resolve((steps += 1) < 3 ? 0 : NEVER_MS) });
    await until(() => steps === 3, 'two pauses of 0 ms');
    await loop.stop();
    assert.equal(steps, 3);
  });

  it('cuts the pause short on runNow, also if that is called during a step', async () => {
    let steps = 0;
    const loop = start({
      async step() {
        steps += 1;
        if (steps === 2) loop.runNow();
      },
    });
    loop.runNow();
    await until(() => steps === 3, 'two more steps');
    await loop.stop();
  });

  it('goes on after a step that rejects', async () => {
    const errors: unknown[] = [];
    const loop = start({
      step: () => Promise.reject(new Error('down')),
      onError: (error) => void errors.push(error),
      periodMs: 1,
    });
    await until(() => errors.length > 1, 'two failures');
    await loop.stop();
  });

  it('waits for the step under way when it is stopped, whose signal aborts', async () => {
    let isDone = false;
    const loop = start({
      async step(signal) {
        await systemClock.sleep(NEVER_MS, signal);
        isDone = true;
      },
    });
    await loop.stop();
    assert.ok(isDone);
  });
});
