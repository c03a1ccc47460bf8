import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { type Clock, systemClock } from '#src/runtime/clock.ts';
import { createLogger } from '#src/runtime/log.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import {
  type DriverCall,
  type SampleDriver,
  startSampleDriver,
} from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf, startTestGateway, verdict, volumeRequest } from '../harness/csi-gateway.ts';
import { until } from '../harness/until.ts';

const SETTINGS = { timeoutMs: 30_000 };

describe('a gateway with the sample driver', () => {
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
    test = await startTestGateway(folder, { log, logsMessages: true });
    await until(() => test.gateway.trouble === undefined, 'ready');
  });
  afterEach(() => test.close());
  after(async () => {
    await driver.close();
    await folder.remove();
  });

  /** Has the driver keep volumes of that name back; others it creates.
   * @returns counts those that are at the driver, and lets them go */
  const holdCreations = (held: string) => {
    let release: () => void = () => undefined;
    const released = new Promise<undefined>((resolve) => {
      release = () => resolve(undefined);
    });
    const creations = { begun: 0, release };
    hook = ({ method, request }) => {
      if (method !== 'CreateVolume' || (request as { name?: string }).name !== held)
        return undefined;
      creations.begun += 1;
      return released;
    };
    return creations;
  };

  it('refuses a second create of the same name, not forwarded', async () => {
    const creations = holdCreations('busy');
    const first = test.client.createVolume(volumeRequest('busy'), SETTINGS);
    await until(() => creations.begun === 1, 'the first call is at the driver');
    const error = await failureOf(test.client.createVolume(volumeRequest('busy'), SETTINGS));
    assert.equal(error.code, Code.Aborted);
    assert.equal(verdict(error), 'not-forwarded');
    assert.equal(error.draining, undefined);
    await test.client.createVolume(volumeRequest('free'), SETTINGS);
    creations.release();
    await first;
    assert.equal(creations.begun, 1);
    await test.client.createVolume(volumeRequest('busy'), SETTINGS);
  });

  it('refuses a call above its cap, not forwarded, and counts no Identity calls', async () => {
    await test.close();
    test = await startTestGateway(folder, { maxInFlight: 1 });
    await until(() => test.gateway.trouble === undefined, 'ready');
    const creations = holdCreations('full');
    const first = test.client.createVolume(volumeRequest('full'), SETTINGS);
    await until(() => creations.begun === 1, 'the first call is at the driver');
    const error = await failureOf(test.client.createVolume(volumeRequest('more'), SETTINGS));
    assert.equal(error.code, Code.Unavailable);
    assert.equal(verdict(error), 'not-forwarded');
    assert.equal(error.isGatewayFull, true);
    assert.match(error.details, /the gateway is full: 1 calls are under way \(--max-in-flight\)/);
    await test.client.getPluginInfo(SETTINGS);
    assert.match(
      await test.metrics.metrics(),
      /sutler_gateway_refused_total\{reason="max-in-flight"\} 1/,
    );
    creations.release();
    await first;
    await test.client.createVolume(volumeRequest('more'), SETTINGS);
  });

  it('releases a volume after a failed call and after a cancelled one', async () => {
    hook = () => {
      throw new DriverStatus(Code.ResourceExhausted, 'full');
    };
    assert.equal(
      verdict(await failureOf(test.client.createVolume(volumeRequest('f'), SETTINGS))),
      'driver',
    );
    const cancelled = new AbortController();
    hook = () => {
      cancelled.abort();
      return new Promise(() => undefined);
    };
    assert.equal(
      verdict(
        await failureOf(
          test.client.createVolume(volumeRequest('f'), { ...SETTINGS, signal: cancelled.signal }),
        ),
      ),
      'ambiguous',
    );
    hook = () => undefined;
    await until(
      async () =>
        test.client.createVolume(volumeRequest('f'), SETTINGS).then(
          () => true,
          () => false,
        ),
      'the volume is free',
    );
  });

  it('does not forward a call after its sutler-not-after', async () => {
    const before = driver.counts.get('DeleteVolume') ?? 0;
    const metadata = { 'sutler-not-after': String(Date.now() - 1) };
    const error = await failureOf(
      test.client.deleteVolume({ volumeId: 'x' }, { ...SETTINGS, metadata }),
    );
    assert.equal(verdict(error), 'not-forwarded');
    assert.equal(error.codeName, 'Aborted');
    assert.match(error.details, /^the driver was not called: .* too late \(sutler-not-after\)/);
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

  it('gives one answer at the deadline, whether its timer or the driver ends the call', async () => {
    let aheadMs = 0;
    const clock: Clock = { ...systemClock, nowMs: () => Date.now() + aheadMs };
    await test.close();
    test = await startTestGateway(folder, { clock });
    await until(() => test.gateway.trouble === undefined, 'ready');
    const answerAfter = async (ms: number): Promise<readonly [string, string]> => {
      hook = ({ method }) => {
        if (method !== 'CreateVolume') return;
        aheadMs += ms;
        throw new DriverStatus(Code.DeadlineExceeded, 'Deadline exceeded');
      };
      const error = await failureOf(test.client.createVolume(volumeRequest('slow'), SETTINGS));
      assert.equal(error.code, Code.DeadlineExceeded);
      return [verdict(error), error.details];
    };
    assert.deepEqual(await answerAfter(0), ['driver', 'Deadline exceeded']);
    const atTimer = ['ambiguous', 'context deadline exceeded'];
    assert.deepEqual(await answerAfter(SETTINGS.timeoutMs), atTimer);
  });

  it('refuses calls while draining, says how many volumes have one, and completes those (R-35)', async () => {
    const creations = holdCreations('drain');
    const first = test.client.createVolume(volumeRequest('drain'), SETTINGS);
    await until(() => creations.begun === 1, 'the call is at the driver');
    const closing = test.gateway.close(5_000);
    const error = await failureOf(test.client.getCapacity({}, SETTINGS));
    assert.equal(verdict(error), 'not-forwarded');
    assert.match(error.message, /shutting down/);
    assert.equal(error.draining, 1);
    creations.release();
    assert.ok((await first).volume);
    await closing;
    assert.equal(verdict(await failureOf(test.client.getCapacity({}, SETTINGS))), 'not-forwarded');
  });

  it('does not report that it is drained while the driver may still run a call that was cut off', async () => {
    await test.close();
    let endAnswers: () => void = () => undefined;
    const answers = new Promise<void>((resolve) => (endAnswers = resolve));
    const clock: Clock = {
      ...systemClock,
      sleep: (ms, signal) => {
        if (ms === 60_000) return Promise.resolve();
        return ms === 1_500 ? answers : systemClock.sleep(ms, signal);
      },
    };
    test = await startTestGateway(folder, { clock });
    await until(() => test.gateway.trouble === undefined, 'ready');
    const creations = holdCreations('cut');
    const first = failureOf(test.client.createVolume(volumeRequest('cut'), SETTINGS));
    await until(() => creations.begun === 1, 'the call is at the driver');
    const closing = test.gateway.close(60_000);
    const error = await first;
    assert.equal(verdict(error), 'ambiguous');
    assert.match(error.message, /stopped before the driver answered/);
    assert.equal((await failureOf(test.client.probe(SETTINGS))).draining, 1);
    endAnswers();
    await closing;
    creations.release();
  });

  it('does not report that it is drained before the deadline of a call whose caller has gone', async () => {
    let aheadMs = 0;
    const clock: Clock = { ...systemClock, nowMs: () => Date.now() + aheadMs };
    await test.close();
    test = await startTestGateway(folder, { clock });
    await until(() => test.gateway.trouble === undefined, 'ready');
    const creations = holdCreations('left');
    const gone = new AbortController();
    const settings = { ...SETTINGS, signal: gone.signal };
    const first = failureOf(test.client.createVolume(volumeRequest('left'), settings));
    await until(() => creations.begun === 1, 'the call is at the driver');
    gone.abort();
    assert.equal(verdict(await first), 'ambiguous');
    const closing = test.gateway.close(60_000);
    assert.equal((await failureOf(test.client.probe(SETTINGS))).draining, 1);
    aheadMs = SETTINGS.timeoutMs;
    assert.equal((await failureOf(test.client.probe(SETTINGS))).draining, 0);
    await closing;
    creations.release();
  });
});
