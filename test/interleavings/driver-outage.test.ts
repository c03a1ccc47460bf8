import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { systemClock } from '#src/runtime/clock.ts';
import { Installation, type Name, NAMES } from './installation.ts';
import { until } from '../harness/until.ts';

describe('the processes, when their driver fails', () => {
  let sutler: Installation;
  before(async () => {
    sutler = await Installation.open();
  });
  after(async () => {
    assert.deepEqual(await sutler.close(), []);
  });

  // npm run chaos kills workers.
  const KILLED: readonly (readonly Name[])[] = [['csi-gateway'], ['sandbox-driver', 'csi-gateway']];
  for (const killed of KILLED) {
    const title = killed.join(' and ');
    it(`lose no volume and no claim when ${title} is killed`, async () => {
      const before = new Map(NAMES.map((name) => [name, sutler.pid(name)]));
      const made = readdirSync(sutler.volumesDir).length;
      const names = sutler.makeClaims(8);
      await until(
        () => readdirSync(sutler.volumesDir).length > made || sutler.pending < 8,
        'calls are under way',
      );
      for (const name of killed) process.kill(before.get(name) ?? 0, 'SIGKILL');
      sutler.deleteClaims(names.slice(0, 4));
      await sutler.allBound();
      for (const name of NAMES) {
        await until(() => sutler.pid(name) !== undefined, `${name} lives`);
        assert.equal(
          sutler.pid(name) === before.get(name),
          !killed.includes(name),
          `${name}: only killed processes are started again`,
        );
      }
    });
  }

  it('recover from a driver that is frozen for longer than the deadline', async () => {
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
