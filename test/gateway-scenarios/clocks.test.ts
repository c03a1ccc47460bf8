import { after, before, describe, it } from 'node:test';
import { Channel } from '#src/gateway-client/channel.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { ProcessClock } from '../harness/process-clock.ts';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { volumeRequest } from '../harness/csi-gateway.ts';
import { openTestPool, type TestPool } from '../harness/gateway-pool.ts';
import { GatewayProcess } from '../harness/gateway-process.ts';
import { until } from '../harness/until.ts';

for (const shiftMs of [60_000, -60_000]) {
  const where = shiftMs > 0 ? 'ahead' : 'behind';

  describe(`A gateway whose clock is a minute ${where}`, () => {
    let folder: Awaited<ReturnType<typeof makeFolder>>;
    let driver: SampleDriver;
    let clock: ProcessClock;
    let gateway: GatewayProcess;
    let pool: TestPool;
    const openPool = (): TestPool => openTestPool(folder.file('gw.sock'));
    const create = (name: string, notAfterMs: number) =>
      pool.createVolume(volumeRequest(name), {
        timeoutMs: 60_000,
        notAfterMs: Date.now() + notAfterMs,
        gateway: '',
      });
    const remove = (volumeId: string) =>
      pool.deleteVolume(
        { volumeId },
        { timeoutMs: 60_000, notAfterMs: Date.now() + 2_000, gateway: '' },
      );

    before(async () => {
      folder = await makeFolder();
      driver = await startSampleDriver({
        socket: folder.file('csi.sock'),
        dataDir: folder.file('data'),
      });
      clock = new ProcessClock(folder.file('clock'));
      await clock.shift(shiftMs);
      const flags = ['--csi-address', folder.file('csi.sock'), '--http-endpoint='];
      const listen = `--listen=unix://${folder.file('gw.sock')}`;
      gateway = await GatewayProcess.start([...flags, listen], clock);
      const asking = openPool();
      const [{ client } = { client: undefined }] = asking.gateways;
      const isReady = () =>
        client?.getCapacity({}, { timeoutMs: 5_000 }).then(
          () => true,
          () => false,
        );
      await until(isReady, 'the gateway has its driver');
      asking.close();
      pool = openPool();
    });
    after(async () => {
      pool.close();
      await gateway.stop();
      await driver.close();
      await folder.remove();
    });

    it('forwards the first call of a process, within its limit', async () => {
      await create('first', 30_000);
    });

    it('forwards creations and deletions, within their limits', async () => {
      const { volume } = await create('a', 30_000);
      await remove(volume?.volumeId ?? '');
    });

    it('forwards calls again, after one at most, when its clock is set', async () => {
      await clock.shift(-shiftMs);
      // Its process reads the shift every 50 ms; the health service answers without the driver.
      await until(async () => {
        const address = { kind: 'unix', path: folder.file('gw.sock') } as const;
        const channel = new Channel({ address, clock: systemClock });
        await channel.connect(new AbortController().signal);
        const { aheadMs } = channel;
        channel.close();
        return Math.sign(aheadMs) !== Math.sign(shiftMs);
      }, 'the clock is set');
      await create('after the jump', 30_000).catch(() => undefined);
      const { volume } = await create('after the jump', 30_000);
      await remove(volume?.volumeId ?? '');
    });
  });
}
