import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectHttp2, type IncomingHttpHeaders } from 'node:http2';
import { connect as connectSocket } from 'node:net';
import { after, before, beforeEach, describe, it } from 'node:test';
import { CREATE } from '../harness/attacks/bodies.ts';
import { RawConnection } from '../harness/attacks/raw-connection.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { emptyCall, grpcHeaders } from '../harness/csi-frames.ts';
import { startTestGateway } from '../harness/csi-gateway.ts';
import {
  answerOk,
  CREATED_VOLUME,
  type RawCall,
  type RawDriver,
  startRawDriver,
} from '../harness/csi-raw-driver.ts';
import { until } from '../harness/until.ts';

/** Paths that a lenient reader might take for CreateVolume, or for a method that is allowed. */
const TRICKS = [
  '//csi.v1.Controller/CreateVolume',
  '/csi.v1.Controller//CreateVolume',
  '/csi.v1.Controller/CreateVolume/',
  '/csi.v1.Controller/createvolume',
  '/CSI.V1.Controller/CreateVolume',
  '/csi.v1.Controller/%43reateVolume',
  '/csi.v1.Controller%2FCreateVolume',
  '/csi.v1.Controller/CreateVolume?',
  '/csi.v1.Controller/CreateVolume?x=/csi.v1.Identity/Probe',
  '/csi.v1.Controller/CreateVolume#',
  '/csi.v1.Controller/CreateVolume;x',
  '/csi.v1.Controller/CreateVolume ',
  '/csi.v1.Controller/CreateVolume\0',
  '/csi.v1.Controller/CreateVolume\0/csi.v1.Identity/Probe',
  '/csi.v1.Controller/CreateVolume\r\nx: y',
  ' /csi.v1.Controller/CreateVolume',
  'csi.v1.Controller/CreateVolume',
  '\\csi.v1.Controller\\CreateVolume',
  'http://localhost/csi.v1.Controller/CreateVolume',
  '/csi.v1.Identity/../csi.v1.Controller/CreateVolume',
  '/csi.v1.Identity/Probe/../../csi.v1.Node/NodeStageVolume',
  '/grpc.health.v1.Health/../csi.v1.Controller/DeleteVolume',
  '/grpc.health.v1.Health/Check/../../csi.v1.Controller/DeleteVolume',
  '/csi.v1.Controller/__proto__',
  '/constructor',
  '*',
  '',
];
const SPOOFED = {
  'sutler-driver-status': '1',
  'sutler-not-forwarded': '1',
  'sutler-full': '1',
  'sutler-draining': '0',
};
const REFUSED = '/csi.v1.Node/NodeStageVolume';

/* test/csi/unary-call.test.ts has the marks that a driver forges. */
describe('the allow-list of the gateway', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: RawDriver;
  let test: Awaited<ReturnType<typeof startTestGateway>>;
  let forwarded: RawCall[] = [];

  before(async () => {
    folder = await makeFolder();
    driver = await startRawDriver(folder.file('csi.sock'), (call) => {
      if (call.path.startsWith('/csi.v1.Identity/')) return false;
      forwarded.push(call);
      return answerOk(call, CREATED_VOLUME);
    });
    test = await startTestGateway(folder);
    await until(() => test.gateway.trouble === undefined, 'ready');
  });
  after(async () => {
    await test.close();
    await driver.close();
    await folder.remove();
  });
  beforeEach(() => (forwarded = []));

  const ended = async (path: string): Promise<string> => {
    const connection = new RawConnection(connectSocket(folder.file('gw.sock')));
    const stream = connection.newStream();
    await connection.send(emptyCall(stream, path));
    const { by } = await connection.ended(stream);
    connection.destroy();
    return by;
  };

  it('forwards a listed path', async () => {
    assert.equal(await ended(CREATE), 'answer');
    assert.deepEqual(
      forwarded.map(({ path }) => path),
      [CREATE],
    );
  });

  for (const path of TRICKS)
    it(`does not forward ${JSON.stringify(path)}`, async () => {
      await ended(path);
      assert.deepEqual(forwarded, []);
    });

  /** Calls with sutler's own marks in the headers and in the trailers of the request.
   * @returns the marks in the answer */
  const marksFor = async (path: string): Promise<Readonly<Record<string, unknown>>> => {
    const session = connectHttp2('http://localhost', {
      createConnection: () => connectSocket(folder.file('gw.sock')),
    });
    const headers = { ...grpcHeaders(path), ...SPOOFED };
    const stream = session.request(headers, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers(SPOOFED));
    const received: IncomingHttpHeaders = {};
    stream.on('response', (answer) => Object.assign(received, answer));
    stream.on('trailers', (answer) => Object.assign(received, answer));
    stream.on('error', () => undefined);
    stream.resume();
    stream.end(Buffer.alloc(5));
    await once(stream, 'close');
    session.destroy();
    const marks = Object.entries(received).filter(([name]) => name.startsWith('sutler-'));
    const { 'sutler-time': timeMs, ...others } = Object.fromEntries(marks);
    assert.match(String(timeMs), /^\d{13}$/);
    return others;
  };

  it('gives no mark of a caller to the driver', async () => {
    await marksFor(CREATE);
    const [call] = forwarded;
    const names = call?.headers.map(([name]) => name) ?? [];
    assert.ok(names.includes('content-type'));
    assert.deepEqual(
      names.filter((name) => name.startsWith('sutler-')),
      [],
    );
  });

  it('returns no mark of a caller with the status of the driver', async () => {
    assert.deepEqual(await marksFor(CREATE), { 'sutler-driver-status': '1' });
  });

  it('returns no mark of a caller with a refusal', async () => {
    assert.deepEqual(await marksFor(REFUSED), { 'sutler-not-forwarded': '1' });
  });
});
