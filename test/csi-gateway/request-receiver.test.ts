import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type ClientHttp2Stream, connect as connectHttp2 } from 'node:http2';
import { connect as connectSocket } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { defaultReaperLimits } from '#src/csi-gateway/connection-reaper.ts';
import { frameMessage } from '#src/csi/grpc-wire.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestGateway } from '../harness/csi-gateway.ts';
import { answerOk, type RawDriver, startRawDriver } from '../harness/csi-raw-driver.ts';
import { until } from '../harness/until.ts';

const CAPACITY = '/csi.v1.Controller/GetCapacity';
const MAX_BYTES = 1024 * 1024;
/** Three of these are more than all requests together may hold. */
const BODY = frameMessage(Buffer.alloc(900_000));

describe('RequestReceiver', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: RawDriver;
  let test: Awaited<ReturnType<typeof startTestGateway>>;
  before(async () => {
    folder = await makeFolder();
    driver = await startRawDriver(
      folder.file('csi.sock'),
      (call) => call.path === CAPACITY && answerOk(call, new Uint8Array()),
    );
    test = await startTestGateway(folder, {
      maxRequestBytes: MAX_BYTES,
      reaperLimits: { ...defaultReaperLimits, requestMs: 300 },
    });
    await until(() => test.gateway.trouble === undefined, 'ready');
  });
  after(async () => {
    await test.close();
    await driver.close();
    await folder.remove();
  });

  /** Starts a call on a connection of its own.
   * @returns its stream, and the status of its answer */
  const call = (body: Buffer): { stream: ClientHttp2Stream; status: Promise<unknown> } => {
    const session = connectHttp2('http://localhost', {
      createConnection: () => connectSocket(folder.file('gw.sock')),
    });
    session.on('error', () => undefined);
    const headers = { ':method': 'POST', ':path': CAPACITY, 'content-type': 'application/grpc' };
    const stream = session.request(headers, { endStream: false });
    stream.on('error', () => undefined);
    stream.once('close', () => session.destroy());
    stream.resume().write(body);
    const status = new Promise((resolve) => {
      const note = (received: Record<string, unknown>): void =>
        received['grpc-status'] === undefined ? undefined : resolve(received['grpc-status']);
      stream.once('response', note);
      stream.once('trailers', note);
    });
    return { stream, status };
  };

  it('gives back the memory of a request that is late, and answers it once', async () => {
    const late = [call(BODY.subarray(1)), call(BODY.subarray(1))];
    assert.deepEqual(await Promise.all(late.map(({ status }) => status)), ['4', '4']);
    const next = [call(BODY), call(BODY)];
    for (const { stream } of next) stream.end();
    assert.deepEqual(await Promise.all(next.map(({ status }) => status)), ['0', '0']);
    for (const { stream } of late) {
      assert.equal(stream.closed, false);
      stream.close();
      await once(stream, 'close');
    }
  });
});
