import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { openOwnDriver } from '#src/all/own-driver.ts';
import { Code } from '#src/csi/status.ts';
import type { GatewayPool } from '#src/gateway-client/pool.ts';
import { Closers } from '#src/runtime/closers.ts';
import { HealthChecks } from '#src/runtime/health.ts';
import { createLogger } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import { type DriverCall, startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf, verdict, volumeRequest } from '../harness/csi-gateway.ts';
import { until } from '../harness/until.ts';

describe('the driver that sutler all calls itself', () => {
  const closers = new Closers();
  const registry = new Registry();
  const health = new HealthChecks();
  const lines: string[] = [];
  let driver: Awaited<ReturnType<typeof startSampleDriver>>;
  let calls: GatewayPool;
  let hook: (call: DriverCall) => unknown = () => undefined;
  const create = (name: string, more: object = {}): Promise<unknown> =>
    calls.createVolume(volumeRequest(name), {
      timeoutMs: 30_000,
      // A call that has just been answered is under way for a moment more.
      notAfterMs: Date.now() + 5_000,
      gateway: '',
      ...more,
    });

  before(async () => {
    const folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('volumes'),
      onCall: (call) => hook(call),
    });
    closers.add('driver', () => driver.close());
    const write = (line: string) => void lines.push(line);
    const { access } = openOwnDriver({
      flags: {
        csiAddress: folder.file('csi.sock'),
        maxInFlight: 2,
        maxMessageBytes: 64 * 1024 * 1024,
        showMessagesWithShortSecrets: false,
        timeoutMs: 5_000,
        v: 5,
      },
      closers,
      health,
      log: createLogger({ name: 'test', verbosity: 5, format: 'json', write }),
      metrics: registry,
    });
    calls = access.gateways;
    await access.driver.waitUntilKnown(AbortSignal.timeout(10_000));
    await until(() => health.troubles().length === 0, 'ready');
  });
  afterEach(() => (hook = () => undefined));
  after(async () => assert.deepEqual(await closers.close(), []));

  it('says of an error of the driver that it is the driver’s', async () => {
    hook = ({ method }) => {
      if (method === 'CreateVolume') throw new DriverStatus(Code.ResourceExhausted, 'full');
    };
    const error = await failureOf(create('refused'));
    assert.deepEqual(
      [error.code, verdict(error)],
      [Code.ResourceExhausted, 'driver'],
      error.message,
    );
  });

  it('gets no call that is for the driver of another process', async () => {
    const error = await failureOf(create('elsewhere', { gateway: 'own:other-pod' }));
    assert.equal(verdict(error), 'not-forwarded');
    assert.match(error.message, /own:other-pod is not among .* this one only calls its own driver/);
  });

  it('counts and logs each call as external-provisioner does', async () => {
    await create('counted', {
      metadata: { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01` },
    });
    assert.match(
      await registry.metrics(),
      /csi_sidecar_operations_seconds_count\{[^}]*method_name="\/csi.v1.Controller\/CreateVolume"/,
    );
    assert.ok(lines.some((line) => /"CSI call"/.test(line) && /counted/.test(line)));
  });
});
