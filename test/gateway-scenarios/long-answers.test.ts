import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { create, toBinary } from '@bufbuild/protobuf';
import { CreateVolumeResponseSchema } from '#src/csi/generated/csi_pb.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf, startTestGateway, verdict, volumeRequest } from '../harness/csi-gateway.ts';
import {
  answerOk,
  answerStatus,
  CREATED_VOLUME,
  type RawCall,
  type RawDriver,
  startRawDriver,
} from '../harness/csi-raw-driver.ts';
import { until } from '../harness/until.ts';

const SETTINGS = { timeoutMs: 30_000 };
const MIB = 1024 * 1024;

describe('A driver that answers one call with too much', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: RawDriver;
  let gateway: Awaited<ReturnType<typeof startTestGateway>>;
  let answerBad: (call: RawCall) => void = () => undefined;
  const connections = (): number => new Set(driver.calls.map(({ session }) => session)).size;

  before(async () => {
    folder = await makeFolder();
    driver = await startRawDriver(
      folder.file('csi.sock'),
      (call) => {
        if (!call.path.endsWith('/CreateVolume')) return false;
        if (call.body.includes('bad')) return answerBad(call);
        // Only after those that were sent before.
        return setTimeout(() => {
          if (!call.stream.destroyed) answerOk(call, CREATED_VOLUME);
        }, 100);
      },
      // As grpc-js has it: it sends what the other side says it does not take.
      { maxSendHeaderBlockLength: 16 * MIB, maxSessionMemory: 1_000 },
    );
    gateway = await startTestGateway(folder, { probeTimeoutMs: 500, probeIntervalMs: 500 });
    await until(() => gateway.gateway.trouble === undefined, 'the driver is ready');
  });
  after(async () => {
    await gateway.close();
    await driver.close();
    await folder.remove();
  });

  it('ends only that call when it answers CreateVolume with 60 MB', async () => {
    const huge = create(CreateVolumeResponseSchema, {
      volume: { volumeId: 'x'.repeat(60_000_000) },
    });
    answerBad = (call) => answerOk(call, toBinary(CreateVolumeResponseSchema, huge));
    const before = connections();
    const failure = failureOf(gateway.client.createVolume(volumeRequest('bad'), SETTINGS));
    const honest = Array.from({ length: 8 }, (_, i) =>
      gateway.client.createVolume(volumeRequest(`honest-${i}`), SETTINGS),
    );
    await Promise.all(honest);
    const error = await failure;
    assert.equal(verdict(error), 'ambiguous');
    assert.equal(
      error.message,
      "rpc error: code = ResourceExhausted desc = the driver's answer to " +
        '/csi.v1.Controller/CreateVolume is larger than 4194304 bytes',
    );
    assert.equal(connections(), before);
  });

  it('is called on a new connection after it sends a status of 128 KiB', async () => {
    answerBad = (call) =>
      answerStatus(call, { 'grpc-status': '8', 'grpc-message': 'x'.repeat(128 * 1024) });
    const before = connections();
    const brief = { timeoutMs: 2_000 };
    const error = await failureOf(gateway.client.createVolume(volumeRequest('bad'), brief));
    assert.equal(verdict(error), 'ambiguous');
    const isReady = (): boolean => connections() > before && gateway.gateway.trouble === undefined;
    await until(isReady, 'the driver is ready again');
    await gateway.client.createVolume(volumeRequest('honest'), SETTINGS);
  });
});
