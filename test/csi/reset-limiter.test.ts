import assert from 'node:assert/strict';
import { connect as connectHttp2, constants } from 'node:http2';
import { connect as connectSocket } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestGateway } from '../harness/csi-gateway.ts';
import {
  answerBytes,
  type RawCall,
  type RawDriver,
  startRawDriver,
} from '../harness/csi-raw-driver.ts';
import { frameMessage } from '#src/csi/grpc-wire.ts';
import { until } from '../harness/until.ts';

const CAPACITY = '/csi.v1.Controller/GetCapacity';

describe('the connection to the driver', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: RawDriver;
  let isSilent = false;
  const unanswered: RawCall[] = [];
  before(async () => {
    folder = await makeFolder();
    driver = await startRawDriver(folder.file('csi.sock'), (call) => {
      if (isSilent) return undefined;
      if (call.path === CAPACITY)
        return answerBytes(call, frameMessage(Buffer.alloc(0)), { 'grpc-status': '0' });
      if (!call.path.endsWith('/ListVolumes')) return false;
      unanswered.push(call);
      return undefined;
    });
  });
  after(async () => {
    await driver.close();
    await folder.remove();
  });

  it('survives more cancelled calls than an HTTP/2 server accepts resets', async () => {
    const test = await startTestGateway(folder);
    await until(() => test.gateway.trouble === undefined, 'ready');
    const connects = async (): Promise<string | undefined> =>
      /driver_connects_total (\d+)/.exec(await test.metrics.metrics())?.[1];
    const before = await connects();
    for (let round = 0; round < 3; round += 1) {
      const session = connectHttp2('http://localhost', {
        createConnection: () => connectSocket(folder.file('gw.sock')),
      });
      session.on('error', () => undefined);
      const streams = Array.from({ length: 450 }, () => {
        const headers = {
          ':method': 'POST',
          ':path': '/csi.v1.Controller/ListVolumes',
          'content-type': 'application/grpc',
          te: 'trailers',
        };
        const stream = session.request(headers);
        stream.on('error', () => undefined);
        stream.end(Buffer.alloc(5));
        return stream;
      });
      await until(() => unanswered.length === 450, 'all calls are at the driver');
      for (const stream of streams) stream.close(constants.NGHTTP2_CANCEL);
      await until(
        () => unanswered.filter(({ stream }) => stream.closed).length >= 100 / (round + 1) / 2,
        'some resets have reached the driver',
      );
      // The driver answers the other calls, so that no reset is pending for them.
      for (const call of unanswered.splice(0))
        if (!call.stream.closed)
          answerBytes(call, frameMessage(Buffer.alloc(0)), { 'grpc-status': '0' });
      session.destroy();
      await until(
        async () => /^sutler_gateway_in_flight 0$/m.test(await test.metrics.metrics()),
        'no call is in flight',
      );
      await test.client.getCapacity({}, { timeoutMs: 30_000 });
    }
    assert.equal(await connects(), before, 'the connection was never lost');
    await test.close();
  });

  it('is replaced when the driver answers nothing on it', async () => {
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
  });
});
