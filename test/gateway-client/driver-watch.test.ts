import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { DriverWatch } from '#src/gateway-client/driver-watch.ts';
import { Code } from '#src/csi/status.ts';
import type { Clock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { openTestPool, type TestPool } from '../harness/gateway-pool.ts';

/** A clock that sleeps until the test ends the sleep. */
interface StepClock extends Clock {
  /** Resolves when the driver was asked and the watch sleeps. */
  waitForSleep(): Promise<void>;
  /** Ends the sleep and resolves when the next one has begun. */
  next(): Promise<void>;
}

function createStepClock(): StepClock {
  let endSleep: () => void = () => undefined;
  let reportSleep: () => void = () => undefined;
  let sleeping = new Promise<void>((resolve) => (reportSleep = resolve));
  return {
    nowMs: () => 0,
    sleep: (_ms, signal) =>
      new Promise((resolve) => {
        endSleep = resolve;
        signal?.addEventListener('abort', () => resolve(), { once: true });
        reportSleep();
      }),
    waitForSleep: () => sleeping,
    next() {
      sleeping = new Promise<void>((resolve) => (reportSleep = resolve));
      endSleep();
      return sleeping;
    },
  };
}

describe('DriverWatch', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: SampleDriver;
  let gateways: TestPool;
  let watch: DriverWatch;
  let clock: StepClock;
  /** What GetPluginInfo answers. */
  let info: () => unknown;
  /** A method that fails. */
  let failing: string;

  beforeEach(async () => {
    folder = await makeFolder();
    clock = createStepClock();
    info = () => ({ name: 'csi/example-1' });
    failing = '';
    driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('data'),
      onCall: ({ method }) => {
        if (method === failing) throw new DriverStatus(Code.Internal, 'backend');
        return method === 'GetPluginInfo' ? info() : undefined;
      },
    });
    gateways = openTestPool(folder.file('csi.sock'));
  });
  afterEach(async () => {
    watch.close();
    gateways.close();
    await driver.close();
    await folder.remove();
  });
  async function open(): Promise<void> {
    watch = new DriverWatch({ gateways, name: '', timeoutMs: 5_000, clock, log: silentLog });
    await clock.waitForSleep();
  }

  it('refreshes the report and refuses another driver name (A-01)', async () => {
    await open();
    assert.deepEqual([watch.current().name, watch.trouble], ['csi/example-1', undefined]);
    info = () => ({ name: 'csi/example-2' });
    await clock.next();
    assert.equal(watch.current().name, 'csi/example-1');
    assert.match(
      watch.trouble ?? '',
      /its driver is csi\/example-2, but this process serves csi\/example-1;/,
    );
    info = () => ({ name: 'csi/example-1' });
    await clock.next();
    assert.equal(watch.trouble, undefined);
  });

  it('identifies the driver by its name only (A-02)', async () => {
    info = () => ({ name: 'csi/example', vendorVersion: '0.2.0', manifest: { hello: 'world' } });
    await open();
    assert.equal(watch.current().name, 'csi/example');
    assert.equal(watch.current().controllerCapabilities.has('CREATE_DELETE_VOLUME'), true);
  });

  it('waits for a driver that answers with an error (A-03)', async () => {
    info = () => {
      throw new DriverStatus(Code.Unavailable, 'mock failure');
    };
    await open();
    assert.match(
      watch.trouble ?? '',
      /csi\.sock: rpc error: code = Unavailable desc = mock failure$/,
    );
    assert.throws(() => watch.current(), /not known yet/);
    info = () => ({ name: 'csi/example' });
    await clock.next();
    assert.equal((await watch.waitUntilKnown(new AbortController().signal))?.name, 'csi/example');
  });

  for (const [method, id] of [
    ['GetPluginCapabilities', 'Q-23'],
    ['ControllerGetCapabilities', 'Q-29'],
  ] as const)
    it(`waits while ${method} fails, and calls it again (${id})`, async () => {
      failing = method;
      await open();
      assert.match(watch.trouble ?? '', /code = Internal desc = backend$/);
      assert.throws(() => watch.current(), /not known yet/);
      failing = '';
      await clock.next();
      assert.equal(watch.trouble, undefined);
    });

  it('waits for a driver that has no name (A-04)', async () => {
    info = () => ({ name: '' });
    await open();
    assert.match(
      watch.trouble ?? '',
      /driver name is empty: GetPluginInfo must return the CSI driver’s name$/,
    );
    assert.throws(() => watch.current(), /not known yet/);
  });
});
