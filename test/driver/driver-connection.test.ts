import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { createServer } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { create, toBinary } from '@bufbuild/protobuf';
import { ProbeResponseSchema } from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import { DriverConnection, type DriverConnectionOptions } from '#src/driver/driver-connection.ts';
import { createDriverMetrics } from '#src/driver/metrics.ts';
import { type Clock, systemClock } from '#src/runtime/clock.ts';
import { createLogger, silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf, startTestGateway, verdict } from '../harness/csi-gateway.ts';
import { answerOk, answerStatus, type RawCall, startRawDriver } from '../harness/csi-raw-driver.ts';
import { until } from '../harness/until.ts';

const encodeReady = (value: boolean | undefined): Uint8Array =>
  toBinary(
    ProbeResponseSchema,
    create(ProbeResponseSchema, value === undefined ? {} : { ready: value }),
  );
const answerError = (call: RawCall): void =>
  answerStatus(call, { 'grpc-status': '13', 'grpc-message': 'backend' });
/** Sleeps a hundredth of the requested time, so that tests need not wait between Probes. */
const fastClock: Clock = {
  nowMs: () => Date.now(),
  sleep: (ms, signal) => systemClock.sleep(ms / 100, signal),
};

describe('DriverConnection', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  before(async () => (folder = await makeFolder()));
  after(() => folder.remove());

  function connectTo(
    socket: string,
    options: Partial<DriverConnectionOptions> = {},
  ): DriverConnection {
    const connection = new DriverConnection({
      address: { kind: 'unix', path: socket },
      probeTimeoutMs: 30_000,
      maxMessageBytes: 1_000_000,
      probeIntervalMs: 3_600_000_000,
      clock: fastClock,
      log: silentLog,
      metrics: createDriverMetrics(new Registry()),
      ...options,
    });
    connection.start();
    return connection;
  }

  type Probe = (call: RawCall) => unknown;
  const ready: Probe = (c) => answerOk(c, encodeReady(true));
  const notReady: Probe = (c) => answerOk(c, encodeReady(false));
  const late: Probe = (c) => answerStatus(c, { 'grpc-status': '4' });
  for (const [title, probes] of [
    ['is ready after one Probe with ready=true (Q-15)', [ready]],
    [
      'is ready after one Probe without ready (Q-16)',
      [(c: RawCall) => answerOk(c, encodeReady(undefined))],
    ],
    ['probes again until ready after ready=false twice (Q-21)', [notReady, notReady, ready]],
    ['probes again after DeadlineExceeded twice (Q-19)', [() => undefined, late, ready]],
    ['probes again after an error, where upstream exits (Q-17)', [answerError, ready]],
    [
      'probes again after DeadlineExceeded and an error, where upstream exits (Q-18)',
      [late, answerError, ready],
    ],
    [
      'probes again after ready=false and an error, where upstream exits (Q-20)',
      [notReady, answerError, ready],
    ],
  ] as const)
    it(title, async () => {
      const socket = folder.file('probe.sock');
      let count = 0;
      const driver = await startRawDriver(socket, (call) =>
        call.path.endsWith('/Probe') ? probes[Math.min(count++, probes.length - 1)]?.(call) : false,
      );
      const isReady = new EventEmitter();
      const onReady = () => isReady.emit('ready');
      const connection = connectTo(socket, { probeTimeoutMs: 1_000, onReady });
      await once(isReady, 'ready');
      assert.equal(connection.trouble, undefined);
      assert.equal(count, probes.length);
      await connection.close();
      await driver.close();
    });

  it('forwards only Identity calls before the first successful Probe', async () => {
    const socket = folder.file('slow.sock');
    const connection = connectTo(socket);
    await until(() => connection.trouble?.includes('ENOENT'), 'it has tried to connect');
    assert.match(connection.findTrouble('/csi.v1.Identity/Probe') ?? '', /not connected/);
    const driver = await startRawDriver(socket, (call) =>
      call.path.endsWith('/Probe') ? answerOk(call, encodeReady(false)) : false,
    );
    await until(() => connection.trouble?.includes('ready=false'), 'the driver has answered');
    assert.equal(connection.findTrouble('/csi.v1.Identity/Probe'), undefined);
    assert.match(connection.findTrouble('/csi.v1.Controller/CreateVolume') ?? '', /not ready/);
    await connection.close();
    await driver.close();
  });

  it('logs a loss that lasts with its reason, and not the restart of the driver', async () => {
    const socket = folder.file('log.sock');
    const lines: string[] = [];
    const write = (line: string): void => void lines.push(line);
    const log = createLogger({ name: 'gateway', verbosity: 0, format: 'text', write });
    const connection = connectTo(socket, { log });
    await until(() => lines.length === 1, 'a driver that is absent is logged');
    assert.match(lines[0] ?? '', /WARN.*: the driver is not ready.*ENOENT/);
    const isReady = () => until(() => connection.trouble === undefined, 'ready');
    let driver = await startRawDriver(socket, () => false);
    await isReady();
    assert.match(lines[1] ?? '', /INFO.*: the driver is ready.*lastedMs=\d/);
    await driver.close();
    await until(() => connection.trouble !== undefined, 'not ready');
    driver = await startRawDriver(socket, () => false);
    await isReady();
    assert.equal(lines.length, 2);
    await driver.close();
    await until(() => lines.length === 3, 'a loss that lasts is logged');
    assert.match(lines[2] ?? '', /WARN.*: the driver is not ready.*ENOENT/);
    await connection.close();
  });

  it('does not report a driver without a name as ready', async () => {
    const socket = folder.file('noname.sock');
    const driver = await startRawDriver(socket, (call) =>
      call.path.endsWith('/GetPluginInfo') ? answerOk(call, Buffer.alloc(0)) : false,
    );
    const connection = connectTo(socket);
    await until(() => connection.trouble?.includes('no name'), 'the driver has answered');
    await connection.close();
    await driver.close();
  });

  it('does not count as connected to a peer that sends nothing', async () => {
    const socket = folder.file('silent.sock');
    const silent = createServer((peer) => peer.on('error', () => undefined).resume());
    await new Promise<void>((resolve) => silent.listen(socket, resolve));
    const connection = connectTo(socket, { probeTimeoutMs: 100 });
    await until(
      () => connection.trouble?.includes('accepts connections but does not answer'),
      'it has timed out once',
    );
    const request = { path: '/x', headers: {}, message: new Uint8Array(0) };
    const answer = await connection.send(request, false);
    assert.equal(answer.kind, 'not-sent');
    await connection.close();
    await new Promise((resolve) => silent.close(resolve));
  });

  it('becomes not ready when a later Probe fails, and recovers', async () => {
    const socket = folder.file('later.sock');
    let isHealthy = true;
    const driver = await startRawDriver(socket, (call) =>
      call.path.endsWith('/Probe') && !isHealthy
        ? answerStatus(call, { 'grpc-status': '9' })
        : false,
    );
    const connection = connectTo(socket, { probeIntervalMs: 10 });
    await until(() => connection.trouble === undefined, 'ready');
    isHealthy = false;
    await until(() => connection.trouble?.includes('FailedPrecondition'), 'not ready');
    isHealthy = true;
    await until(() => connection.trouble === undefined, 'ready again');
    await connection.close();
    await driver.close();
  });
});

describe('the connection to the driver', () => {
  it('is replaced when the driver answers nothing on it', async () => {
    const folder = await makeFolder();
    let isSilent = false;
    const driver = await startRawDriver(folder.file('csi.sock'), (call) => {
      if (isSilent) return undefined;
      return call.path.endsWith('/GetCapacity') ? answerOk(call, Buffer.alloc(0)) : false;
    });
    const test = await startTestGateway(folder, { probeTimeoutMs: 150, probeIntervalMs: 200 });
    await until(() => test.gateway.trouble === undefined, 'ready');
    isSilent = true;
    await until(
      async () => /driver_connects_total [2-9]/.test(await test.metrics.metrics()),
      'there is a new connection',
    );
    isSilent = false;
    await until(() => test.gateway.trouble === undefined, 'ready again');
    await test.client.getCapacity({}, { timeoutMs: 30_000 });
    await test.close();
    await driver.close();
    await folder.remove();
  });
});

describe('a driver that starts late and restarts', () => {
  it('is found and its loss noticed, each time (Q-34, Q-36, Q-37, Q-38, R-35)', async () => {
    const folder = await makeFolder();
    let pauses: number[] = [];
    const clock: Clock = {
      ...fastClock,
      sleep: (ms, signal) => {
        pauses.push(ms);
        return fastClock.sleep(ms, signal);
      },
    };
    const test = await startTestGateway(folder, { clock });
    const early = await failureOf(test.client.probe({ timeoutMs: 30_000 }));
    assert.equal(verdict(early), 'not-forwarded');
    assert.equal(early.code, Code.Unavailable);
    for (let life = 0; life < 3; life += 1) {
      await until(() => pauses.length > 10, 'the gateway has tried many times');
      assert.equal(Math.max(...pauses), 500, 'it tries every half second, at first more often');
      const driver = await startRawDriver(folder.file('csi.sock'), () => false);
      await until(() => test.gateway.trouble === undefined, 'the driver is found');
      await test.client.probe({ timeoutMs: 30_000 });
      await driver.close();
      await until(() => test.gateway.trouble !== undefined, 'the loss is noticed');
      pauses = [];
      const error = await failureOf(test.client.getCapacity({}, { timeoutMs: 30_000 }));
      assert.equal(verdict(error), 'not-forwarded');
      assert.equal(error.code, Code.Unavailable, 'at once, not at its deadline');
    }
    const text = await test.metrics.metrics();
    assert.match(text, /sutler_gateway_driver_connects_total 3/);
    assert.match(text, /sutler_gateway_refused_total\{reason="driver-down"\} 4/);
    await test.close();
    await folder.remove();
  });
});
