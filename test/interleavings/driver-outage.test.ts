import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { systemClock } from '#src/runtime/clock.ts';
import { until } from '../harness/csi-folder.ts';
import { Installation, NAMES, type Name } from './installation.ts';

describe('the processes, when their driver is in trouble', () => {
  let sutler: Installation;
  before(async () => {
    sutler = await Installation.open();
  });
  after(async () => {
    assert.deepEqual(await sutler.close(), []);
  });

  // Killed workers: crash-points.test.ts.
  const KILLED: readonly (readonly Name[])[] = [
    ['sandbox-driver'],
    ['csi-gateway'],
    ['sandbox-driver', 'csi-gateway'],
  ];
  for (const victims of KILLED) {
    it(`leave no volume and no claim behind when ${victims.join(' and ')} got SIGKILL in the middle of calls`, async () => {
      const before = new Map(NAMES.map((name) => [name, sutler.pid(name)]));
      const made = readdirSync(sutler.volumesDir).length;
      const names = sutler.makeClaims(8);
      await until(
        'calls are under way',
        () => readdirSync(sutler.volumesDir).length > made || sutler.pending < 8,
      );
      for (const victim of victims) process.kill(before.get(victim) ?? 0, 'SIGKILL');
      sutler.deleteClaims(names.slice(0, 4));
      await sutler.allBound();
      for (const name of NAMES) {
        await until(`${name} lives`, () => sutler.pid(name) !== undefined);
        assert.equal(
          sutler.pid(name) === before.get(name),
          !victims.includes(name),
          `${name}: only who was killed starts anew`,
        );
      }
    });
  }

  it('recover by themselves from a driver that stands still past the deadline', async () => {
    const before = sutler.pids();
    const driver = sutler.pid('sandbox-driver') ?? 0;
    process.kill(driver, 'SIGSTOP');
    try {
      sutler.makeClaims(3);
      await systemClock.sleep(1_500);
      assert.equal(sutler.pending, 3);
    } finally {
      process.kill(driver, 'SIGCONT');
    }
    await sutler.allBound();
    assert.deepEqual(sutler.pids(), before);
  });
});
