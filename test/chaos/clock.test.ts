import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ChaosClock } from '../../chaos/clock.ts';
import { until } from '../harness/until.ts';

/** Sends its times every 10 ms. */
const PROGRAM = `
  setInterval(() => process.send({
    now: Date.now(),
    made: new Date().getTime(),
    text: Date.parse(Date()),
    given: new Date(5).getTime(),
    isDate: new Date() instanceof Date,
    steady: performance.now(),
  }), 10);
`;

interface Times {
  readonly now: number;
  readonly made: number;
  /** In whole seconds. */
  readonly text: number;
  readonly given: number;
  readonly isDate: boolean;
  readonly steady: number;
}

describe('ChaosClock', () => {
  let dir = '';
  let clock: ChaosClock;
  let child: ChildProcess;
  let times: Times | undefined;
  let steps: number[] = [];
  const offMs = (): number => (times?.now ?? Number.NaN) - Date.now();
  const start = (): void => {
    times = undefined;
    child = spawn(process.execPath, [...clock.nodeArgs, '-e', PROGRAM], {
      env: { ...process.env, ...clock.env },
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    child.on('message', (message) => {
      const next = message as Times;
      if (times !== undefined) steps.push(next.steady - times.steady);
      times = next;
    });
  };
  const stop = async (): Promise<void> => {
    child.kill('SIGKILL');
    await once(child, 'exit');
  };

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'sutler-chaos-clock-'));
    clock = new ChaosClock(join(dir, 'clock'));
    start();
    await until(() => times !== undefined, 'the child runs');
  });
  after(async () => {
    await stop();
    await rm(dir, { recursive: true });
  });

  it("is the machine's clock at first", () => assert.ok(Math.abs(offMs()) < 2_000, `${offMs()}`));

  for (const shiftMs of [5_000, -5_000])
    it(`shifts all of Date by ${shiftMs} ms while the process runs, and back`, async () => {
      steps = [];
      await clock.shift(shiftMs);
      await until(() => Math.abs(offMs() - shiftMs) < 2_000, 'the clock is off');
      assert.ok(times !== undefined);
      assert.ok(Math.abs(times.made - times.now) < 1_000);
      assert.ok(Math.abs(times.text - times.now) < 2_000);
      assert.equal(times.given, 5);
      assert.ok(times.isDate);
      await clock.shift(0);
      await until(() => Math.abs(offMs()) < 2_000, 'the clock is right');
      assert.ok(Math.min(...steps) >= 0 && Math.max(...steps) < 4_000, 'performance.now() jumped');
    });

  it('is still off in a process that was restarted', async () => {
    await clock.shift(-5_000);
    await stop();
    start();
    await until(() => times !== undefined, 'the child runs again');
    assert.ok(Math.abs(offMs() + 5_000) < 2_000, `${offMs()}`);
  });
});
