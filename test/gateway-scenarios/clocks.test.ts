import { after, before, describe, it } from 'node:test';
import { systemClock } from '#src/runtime/clock.ts';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestGateway, volumeRequest } from '../harness/csi-gateway.ts';
import { openTestPool, type TestPool } from '../harness/gateway-pool.ts';
import { until } from '../harness/until.ts';

for (const shiftMs of [60_000, -60_000]) {
  const where = shiftMs > 0 ? 'ahead' : 'behind';

  describe(`A gateway whose clock is a minute ${where}`, () => {
    let folder: Awaited<ReturnType<typeof makeFolder>>;
    let driver: SampleDriver;
    let test: Awaited<ReturnType<typeof startTestGateway>>;
    let pool: TestPool;
    let aheadMs = shiftMs;
    const create = (name: string) =>
      pool.createVolume(volumeRequest(name), {
        timeoutMs: 60_000,
        notAfterMs: Date.now() + 30_000,
        gateway: '',
      });

    before(async () => {
      folder = await makeFolder();
      const socket = folder.file('csi.sock');
      driver = await startSampleDriver({ socket, dataDir: folder.file('data') });
      const clock = { ...systemClock, nowMs: () => Date.now() + aheadMs };
      test = await startTestGateway(folder, { clock });
      await until(() => test.gateway.trouble === undefined, 'the gateway has its driver');
      pool = openTestPool(folder.file('gw.sock'));
    });
    after(async () => {
      pool.close();
      await test.close();
      await driver.close();
      await folder.remove();
    });

    it('forwards the first call of a client before its not-after time', async () => {
      await create('first');
    });

    it('forwards calls again after at most one refusal when its clock is corrected', async () => {
      aheadMs = 0;
      await create('after the jump').catch(() => undefined);
      await create('after the jump');
    });
  });
}
