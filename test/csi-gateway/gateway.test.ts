import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { Code, FAILOVER_METADATA } from '#src/csi/status.ts';
import { createCsiClient } from '#src/gateway-client/client.ts';
import { systemClock } from '#src/runtime/clock.ts';
import type { Clock } from '#src/runtime/clock.ts';
import { createLogger, silentLog } from '#src/runtime/log.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import { startSampleDriver } from '../../sandbox/driver/server.ts';
import type { DriverCall, SampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder, until } from '../harness/csi-folder.ts';
import { failureOf, startTestGateway, verdict, volumeRequest } from '../harness/csi-gateway.ts';

const SETTINGS = { timeoutMs: 30_000 };

/** A gate that a test opens. */
function gate(): { readonly opened: Promise<void>; open(): void } {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open: () => open() };
}

describe('the gateway before the sample driver', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: SampleDriver;
  let test: Awaited<ReturnType<typeof startTestGateway>>;
  let hook: (call: DriverCall) => unknown;
  const lines: string[] = [];

  before(async () => {
    folder = await makeFolder();
    driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('data'),
      onCall: (call) => hook(call),
    });
  });
  beforeEach(async () => {
    hook = () => undefined;
    lines.length = 0;
    const log = createLogger({
      name: 'gateway',
      verbosity: 5,
      format: 'json',
      write: (line) => lines.push(line),
    });
    test = await startTestGateway(folder, { log, logMessages: true });
    await until('ready', () => test.gateway.trouble === undefined);
  });
  afterEach(() => test.close());
  after(async () => {
    await driver.close();
    await folder.remove();
  });

  it('creates, finds and deletes a volume, vouching for each answer', async () => {
    const vouched: boolean[] = [];
    const settings = {
      ...SETTINGS,
      onTrailers: ({ driverSaid }: { readonly driverSaid: boolean }): unknown =>
        vouched.push(driverSaid),
    };
    const { volume } = await test.client.createVolume(volumeRequest('a'), settings);
    const again = await test.client.createVolume(volumeRequest('a'), settings);
    assert.equal(again.volume?.volumeId, volume?.volumeId);
    const got = await test.client.controllerGetVolume(
      { volumeId: volume?.volumeId ?? '' },
      settings,
    );
    assert.equal(got.volume?.volumeId, volume?.volumeId);
    await test.client.deleteVolume({ volumeId: volume?.volumeId ?? '' }, settings);
    const gone = await failureOf(
      test.client.controllerGetVolume({ volumeId: volume?.volumeId ?? '' }, settings),
    );
    assert.equal(gone.code, Code.NotFound);
    assert.deepEqual(vouched, [true, true, true, true, true]);
  });

  it('knows the driver’s name and capabilities', () => {
    assert.equal(test.gateway.identity?.name, 'sample.csi.sutler.dev');
    assert.ok(test.gateway.identity.capabilities.controller.has('CREATE_DELETE_VOLUME'));
    assert.ok(test.gateway.identity.capabilities.plugin.has('CONTROLLER_SERVICE'));
  });

  it('refuses a second create of the same name at once, not forwarded, while others pass', async () => {
    const hold = gate();
    let asked = 0;
    hook = ({ method, request }) => {
      if (method !== 'CreateVolume' || (request as { name?: string }).name !== 'busy')
        return undefined;
      asked += 1;
      return hold.opened.then(() => undefined);
    };
    const first = test.client.createVolume(volumeRequest('busy'), SETTINGS);
    await until('the first arrived', () => asked === 1);
    const error = await failureOf(test.client.createVolume(volumeRequest('busy'), SETTINGS));
    assert.equal(error.code, Code.Aborted);
    assert.equal(verdict(error), 'not-forwarded');
    await test.client.createVolume(volumeRequest('free'), SETTINGS);
    hold.open();
    await first;
    assert.equal(asked, 1);
    await test.client.createVolume(volumeRequest('busy'), SETTINGS);
  });

  it('refuses a delete while a create of the same volume is under way, and the other way round', async () => {
    const { volume } = await test.client.createVolume(volumeRequest('both'), SETTINGS);
    const volumeId = volume?.volumeId ?? '';
    for (const [held, other] of [
      [
        () => test.client.createVolume(volumeRequest('both'), SETTINGS),
        () => test.client.deleteVolume({ volumeId }, SETTINGS),
      ],
      [
        () => test.client.deleteVolume({ volumeId }, SETTINGS),
        () => test.client.createVolume(volumeRequest('both'), SETTINGS),
      ],
    ] as const) {
      const hold = gate();
      let arrived = false;
      hook = () => {
        arrived = true;
        return hold.opened.then(() => undefined);
      };
      const first: Promise<unknown> = held();
      await until('the first arrived', () => arrived);
      const error = await failureOf(other());
      assert.equal(error.code, Code.Aborted);
      assert.equal(verdict(error), 'not-forwarded');
      hold.open();
      await first;
    }
  });

  it('gives a volume free again after a failed and after an abandoned call', async () => {
    hook = () => {
      throw new DriverStatus(Code.ResourceExhausted, 'full');
    };
    assert.equal(
      verdict(await failureOf(test.client.createVolume(volumeRequest('f'), SETTINGS))),
      'driver',
    );
    const gaveUp = new AbortController();
    hook = () => {
      gaveUp.abort();
      return new Promise(() => undefined);
    };
    assert.equal(
      verdict(
        await failureOf(
          test.client.createVolume(volumeRequest('f'), { ...SETTINGS, signal: gaveUp.signal }),
        ),
      ),
      'ambiguous',
    );
    hook = () => undefined;
    await until('free', async () =>
      test.client.createVolume(volumeRequest('f'), SETTINGS).then(
        () => true,
        () => false,
      ),
    );
  });

  it('does not forward a call past its sutler-not-after', async () => {
    const before = driver.counts.get('DeleteVolume') ?? 0;
    const metadata = { 'sutler-not-after': String(Date.now() - 1) };
    const error = await failureOf(
      test.client.deleteVolume({ volumeId: 'x' }, { ...SETTINGS, metadata }),
    );
    assert.equal(verdict(error), 'not-forwarded');
    const unreadable = await failureOf(
      test.client.deleteVolume(
        { volumeId: 'x' },
        { ...SETTINGS, metadata: { 'sutler-not-after': 'soon' } },
      ),
    );
    assert.equal(verdict(unreadable), 'not-forwarded');
    assert.equal(driver.counts.get('DeleteVolume') ?? 0, before);
    await test.client.deleteVolume(
      { volumeId: 'x' },
      { ...SETTINGS, notAfterMs: Date.now() + 60_000 },
    );
    assert.equal(driver.counts.get('DeleteVolume'), before + 1);
  });

  it('does not show the driver sutler’s own metadata', async () => {
    let seen: string[] = [];
    hook = ({ metadata }) => {
      seen = Object.keys(metadata.getMap());
      return undefined;
    };
    await test.client.deleteVolume(
      { volumeId: 'x' },
      { ...SETTINGS, notAfterMs: Date.now() + 60_000, metadata: { 'x-mine': '1' } },
    );
    assert.ok(seen.includes('x-mine'));
    assert.deepEqual(
      seen.filter((key) => key.startsWith('sutler-')),
      [],
    );
  });

  it('logs calls with secrets stripped, from the driver’s words too', async () => {
    hook = () => {
      throw new DriverStatus(Code.InvalidArgument, 'bad password hunter2hunter2');
    };
    await failureOf(
      test.client.createVolume(
        { ...volumeRequest('s'), secrets: { password: 'hunter2hunter2' } },
        SETTINGS,
      ),
    );
    const line = lines.find((text) => text.includes('CreateVolume'));
    assert.ok(line !== undefined);
    const logged = JSON.parse(line) as {
      request: { name: string; secrets: string };
      details: string;
      code: string;
      driverSaid: boolean;
    };
    assert.equal(logged.request.name, 's');
    assert.equal(logged.request.secrets, '***stripped***');
    assert.equal(logged.details, 'bad password ***stripped***');
    assert.equal(logged.code, 'InvalidArgument');
    assert.equal(logged.driverSaid, true);
    assert.ok(!lines.join('').includes('hunter2'));
  });

  it('measures each call that was forwarded under upstream’s metric name (Q-39, Q-43)', async () => {
    await test.client.getCapacity({}, SETTINGS);
    await failureOf(test.client.createVolume(volumeRequest(''), SETTINGS));
    const text = await test.metrics.metrics();
    const series = (method: string, code: string): string =>
      `csi_sidecar_operations_seconds_count{driver_name="sample.csi.sutler.dev",method_name="/csi.v1.Controller/${method}",grpc_status_code="${code}"} 1`;
    assert.ok(text.includes(series('GetCapacity', 'OK')), text);
    assert.ok(text.includes(series('CreateVolume', 'InvalidArgument')));
    assert.match(
      text,
      /driver_name="unknown-driver",method_name="\/csi\.v1\.Identity\/Probe"/,
      'before the name is known',
    );
    assert.match(text, /^sutler_gateway_in_flight 0$/m);
  });

  it('drains: refuses new calls not forwarded, lets those under way end (R-35)', async () => {
    const hold = gate();
    let arrived = false;
    hook = ({ method }) => {
      if (method !== 'CreateVolume') return undefined;
      arrived = true;
      return hold.opened.then(() => undefined);
    };
    const first = test.client.createVolume(volumeRequest('drain'), SETTINGS);
    await until('arrived', () => arrived);
    const closing = test.gateway.close(5_000);
    const error = await failureOf(test.client.getCapacity({}, SETTINGS));
    assert.equal(verdict(error), 'not-forwarded');
    assert.match(error.message, /shutting down/);
    hold.open();
    assert.ok((await first).volume);
    await closing;
    assert.equal(verdict(await failureOf(test.client.getCapacity({}, SETTINGS))), 'not-forwarded');
  });

  it('says while it drains how many volumes have calls under way', async () => {
    const hold = gate();
    let arrived = false;
    hook = ({ method }) => {
      if (method !== 'CreateVolume') return undefined;
      arrived = true;
      return hold.opened.then(() => undefined);
    };
    const first = test.client.createVolume(volumeRequest('counted'), SETTINGS);
    await until('arrived', () => arrived);
    assert.equal(
      (await failureOf(test.client.createVolume(volumeRequest('counted'), SETTINGS))).draining,
      undefined,
    );
    const closing = test.gateway.close(5_000);
    assert.equal((await failureOf(test.client.probe(SETTINGS))).draining, 1);
    hold.open();
    await first;
    await closing;
  });

  it('stays until a caller that chooses between gateways has heard that it is drained', async () => {
    const electing = { ...SETTINGS, metadata: { [FAILOVER_METADATA]: '1' } };
    // On this clock no time passes: what ends a wait is the signal.
    const clock: Clock = {
      nowMs: () => 0,
      sleep: (ms, signal) => systemClock.sleep(ms === 2_000 ? 2 ** 31 - 1 : ms, signal),
    };
    const other = await startTestGateway(folder, {
      clock,
      listen: { kind: 'unix', path: folder.file('told.sock') },
    });
    await until('ready', () => other.gateway.trouble === undefined);
    await other.client.probe(electing);
    const closing = other.gateway.close(60_000);
    const error = await failureOf(other.client.probe(electing));
    assert.equal(error.draining, 0);
    assert.equal(verdict(error), 'not-forwarded');
    await closing;
    other.client.close();
  });

  it('waits no longer than 2 s for such a caller', async () => {
    const slept: number[] = [];
    const clock: Clock = {
      nowMs: () => 0,
      sleep: (ms, signal) => {
        slept.push(ms);
        return systemClock.sleep(ms / 100, signal);
      },
    };
    const other = await startTestGateway(folder, {
      clock,
      listen: { kind: 'unix', path: folder.file('waits.sock') },
    });
    await until('ready', () => other.gateway.trouble === undefined);
    await other.client.probe({ ...SETTINGS, metadata: { [FAILOVER_METADATA]: '1' } });
    slept.length = 0;
    await other.gateway.close(60_000);
    assert.equal(slept.filter((ms) => ms === 2_000).length, 1);
    other.client.close();
  });

  it('answers what is still under way after the grace period as ambiguous', async () => {
    let arrived = false;
    hook = () => {
      arrived = true;
      return new Promise(() => undefined);
    };
    const first = failureOf(test.client.createVolume(volumeRequest('late'), SETTINGS));
    await until('arrived', () => arrived);
    await test.gateway.close(20);
    const error = await first;
    assert.equal(verdict(error), 'ambiguous');
    assert.match(error.message, /stopped before the driver answered/);
  });
});

describe('a client without a gateway', () => {
  it('takes nobody’s word: every failure that was sent is ambiguous', async () => {
    const folder = await makeFolder();
    const driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('data'),
    });
    const client = createCsiClient({
      address: { kind: 'unix', path: folder.file('csi.sock') },
      log: silentLog,
    });
    const error = await failureOf(client.createVolume(volumeRequest(''), SETTINGS));
    assert.equal(error.message, 'rpc error: code = InvalidArgument desc = no volume name given');
    assert.equal(verdict(error), 'ambiguous');
    client.close();
    await driver.close();
    await folder.remove();
  });
});
