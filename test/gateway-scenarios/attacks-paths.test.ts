import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectHttp2, type IncomingHttpHeaders } from 'node:http2';
import { connect as connectSocket } from 'node:net';
import { after, before, beforeEach, describe, it } from 'node:test';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestGateway } from '../harness/csi-gateway.ts';
import {
  answerOk,
  CREATED_VOLUME,
  type RawCall,
  type RawDriver,
  startRawDriver,
} from '../harness/csi-raw-driver.ts';
import { until } from '../harness/until.ts';

const CREATE = '/csi.v1.Controller/CreateVolume';
/** Paths that a lenient reader might take for CreateVolume, or for a method that is allowed. */
const TRICKS = [
  '//csi.v1.Controller/CreateVolume',
  '/csi.v1.Controller/CreateVolume/',
  '/csi.v1.Controller/createvolume',
  '/csi.v1.Controller/%43reateVolume',
  '/csi.v1.Controller/CreateVolume?x=/csi.v1.Identity/Probe',
  '/csi.v1.Identity/../csi.v1.Controller/CreateVolume',
  '/grpc.health.v1.Health/Check/../../csi.v1.Controller/DeleteVolume',
  '/csi.v1.Controller/__proto__',
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

  /** Calls with sutler's own marks in the headers and in the trailers of the request.
   * @returns the marks in the answer */
  const marksFor = async (path: string): Promise<Readonly<Record<string, unknown>>> => {
    const session = connectHttp2('http://localhost', {
      createConnection: () => connectSocket(folder.file('gw.sock')),
    });
    const headers = {
      ':method': 'POST',
      ':path': path,
      'content-type': 'application/grpc',
      ...SPOOFED,
    };
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
    return Object.fromEntries(marks);
  };

  it('forwards a listed path', async () => {
    await marksFor(CREATE);
    assert.deepEqual(
      forwarded.map(({ path }) => path),
      [CREATE],
    );
  });

  for (const path of TRICKS)
    it(`does not forward ${JSON.stringify(path)}`, async () => {
      await marksFor(path);
      assert.deepEqual(forwarded, []);
    });

  /** The time is the gateway's own. */
  const assertOwn = (marks: Readonly<Record<string, unknown>>): void => {
    assert.match(String(marks['sutler-time']), /^\d{13}$/);
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
    const marks = await marksFor(CREATE);
    assertOwn(marks);
    assert.equal(marks['sutler-driver-status'], '1');
    assert.equal(Object.keys(marks).length, 2);
  });

  it('returns no mark of a caller with a refusal', async () => {
    const marks = await marksFor(REFUSED);
    assertOwn(marks);
    assert.equal(marks['sutler-not-forwarded'], '1');
    assert.equal(Object.keys(marks).length, 2);
  });
});
