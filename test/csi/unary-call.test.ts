import assert from 'node:assert/strict';
import { constants } from 'node:http2';
import { after, before, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { frameMessage } from '#src/csi/grpc-wire.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf, startTestGateway, verdict, volumeRequest } from '../harness/csi-gateway.ts';
import {
  answerBytes,
  answerOk,
  answerStatus,
  answerTrailersOnly,
  CREATED_VOLUME,
  type RawCall,
  type RawDriver,
  startRawDriver,
} from '../harness/csi-raw-driver.ts';
import { until } from '../harness/until.ts';

const FORGED = { 'sutler-driver-status': '1', 'sutler-not-forwarded': '1', 'sutler-full': '1' };

const reset =
  (code: number) =>
  ({ stream }: RawCall): void =>
    stream.close(code);
const HEADERS = { ':status': 200, 'content-type': 'application/grpc' };
const CREATED = frameMessage(CREATED_VOLUME);

/** The ways in which a call can end without OK, and what the caller must be told: the driver's
 * status of that code, or an ambiguous one. */
const ENDS: readonly (readonly [
  title: string,
  end: (call: RawCall) => unknown,
  driverCode?: number,
])[] = [
  ['trailers with a status and nothing else', (c) => answerStatus(c, { 'grpc-status': '8' }), 8],
  ['a trailers-only status', (c) => answerTrailersOnly(c, { 'grpc-status': '9' }), 9],
  ["the driver's own Unavailable", (c) => answerStatus(c, { 'grpc-status': '14' }), 14],
  ["the driver's own DeadlineExceeded", (c) => answerStatus(c, { 'grpc-status': '4' }), 4],
  ['a forged mark', (c) => answerStatus(c, { 'grpc-status': '5', ...FORGED }), 5],
  ['a code that gRPC does not define', (c) => answerStatus(c, { 'grpc-status': '77' }), 77],
  ['an error after a message', (c) => answerBytes(c, CREATED, { 'grpc-status': '13' }), 13],
  ['RST_STREAM NO_ERROR', reset(constants.NGHTTP2_NO_ERROR)],
  ['RST_STREAM REFUSED_STREAM', reset(constants.NGHTTP2_REFUSED_STREAM)],
  ['RST_STREAM CANCEL', reset(constants.NGHTTP2_CANCEL)],
  [
    'RST_STREAM after a whole message',
    ({ stream }) => {
      stream.respond({ ...HEADERS, ...FORGED });
      stream.write(CREATED);
      setImmediate(() => stream.close(constants.NGHTTP2_INTERNAL_ERROR));
    },
  ],
  ['a lost socket', ({ cut }) => cut()],
  [
    'GOAWAY with an error, then the end of the connection',
    ({ session }) => session.destroy(undefined, constants.NGHTTP2_INTERNAL_ERROR),
  ],
  ['HTTP 200 without a status', (c) => answerTrailersOnly(c, FORGED)],
  ['HTTP 503 with an empty body', (c) => answerTrailersOnly(c, { ':status': 503, ...FORGED })],
  ['HTTP 500 with a status', (c) => answerTrailersOnly(c, { ':status': 500, 'grpc-status': '3' })],
  [
    'an HTML error page of a proxy',
    ({ stream }) => {
      stream.respond({ ':status': 502, 'content-type': 'text/html' });
      stream.end('<html><body>bad gateway, very bad gateway</body></html>');
    },
  ],
  [
    'a status with a content type that is not gRPC',
    (c) => answerTrailersOnly(c, { 'content-type': 'text/html', 'grpc-status': '3' }),
  ],
  ['a status that is no number', (c) => answerStatus(c, { 'grpc-status': '0x3' })],
  ['two statuses', (c) => answerStatus(c, { 'grpc-status': ['3', '5'] })],
  ['a negative status', (c) => answerStatus(c, { 'grpc-status': '-3' })],
  [
    'a status in the first headers but no trailers',
    ({ stream }) => {
      stream.respond({ ...HEADERS, 'grpc-status': '3' });
      stream.end(CREATED);
    },
  ],
  ['OK without a message', (c) => answerStatus(c, { 'grpc-status': '0' })],
  ['OK with half a message', (c) => answerBytes(c, CREATED.subarray(0, 7), { 'grpc-status': '0' })],
  [
    'OK with two messages',
    (c) => answerBytes(c, Buffer.concat([CREATED, CREATED]), { 'grpc-status': '0' }),
  ],
  [
    'OK with a compressed message, which nobody asked for',
    (c) => answerBytes(c, Buffer.from([1, 0, 0, 0, 1, 0]), { 'grpc-status': '0' }),
  ],
  ['a response that is too large', (c) => answerOk(c, Buffer.alloc(200_000))],
  ['a message that can’t be decoded', (c) => answerOk(c, Buffer.from([0x0a, 0xff]))],
];

describe('callUnary', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: RawDriver;
  let test: Awaited<ReturnType<typeof startTestGateway>>;
  let script: (call: RawCall) => unknown = () => false;

  before(async () => {
    folder = await makeFolder();
    driver = await startRawDriver(
      folder.file('csi.sock'),
      (call) => (call.path.endsWith('/CreateVolume') ? script(call) : false),
      // As grpc-js has it: it sends what the other side says it does not take.
      { maxSendHeaderBlockLength: 1024 * 1024 },
    );
    test = await startTestGateway(folder, { maxMessageBytes: 100_000, probeIntervalMs: 500 });
  });
  after(async () => {
    await test.close();
    await driver.close();
    await folder.remove();
  });

  const succeeds = (): Promise<boolean> =>
    test.client.createVolume(volumeRequest('new'), { timeoutMs: 30_000 }).then(
      () => true,
      () => false,
    );

  for (const [title, end, driverCode] of ENDS) {
    const status = driverCode === undefined ? 'ambiguous' : 'the driver’s status';
    it(`reports ${title} as ${status}, and sends the call once`, async () => {
      await until(() => test.gateway.trouble === undefined, 'the driver is ready');
      let sent = 0;
      script = (call) => ((sent += 1), end(call));
      const error = await failureOf(
        test.client.createVolume(volumeRequest('v'), { timeoutMs: 30_000 }),
      );
      if (driverCode === undefined) {
        assert.equal(verdict(error), 'ambiguous', error.message);
        assert.notEqual(error.code, Code.OK);
        assert.match(error.message, /CreateVolume/, 'an ambiguous error names the method');
      } else assert.deepEqual([verdict(error), error.code], ['driver', driverCode]);
      if (driverCode === 77) assert.equal(error.codeName, 'Code(77)');
      assert.equal(sent, 1);
    });
  }

  it('resets the driver’s stream when the caller cancels', async () => {
    await until(() => test.gateway.trouble === undefined, 'the driver is ready');
    let arrived = false;
    const closed = new Promise<number | undefined>((resolve) => {
      script = ({ stream }) => {
        arrived = true;
        stream.on('close', () => resolve(stream.rstCode));
      };
    });
    const cancelled = new AbortController();
    const call = failureOf(
      test.client.createVolume(volumeRequest('v'), { timeoutMs: 30_000, signal: cancelled.signal }),
    );
    await until(() => arrived, 'the call is at the driver');
    cancelled.abort();
    const error = await call;
    assert.equal(verdict(error), 'ambiguous');
    assert.equal(error.message, 'rpc error: code = Canceled desc = context canceled');
    assert.equal(await closed, constants.NGHTTP2_CANCEL);
  });

  it('goes on with a new connection after a status of 128 KiB', async () => {
    await until(() => test.gateway.trouble === undefined, 'the driver is ready');
    script = (call) =>
      answerStatus(call, { 'grpc-status': '8', 'grpc-message': 'x'.repeat(131_072) });
    const error = await failureOf(
      test.client.createVolume(volumeRequest('v'), { timeoutMs: 2_000 }),
    );
    assert.equal(verdict(error), 'ambiguous');
    script = (call) => answerOk(call, CREATED_VOLUME);
    await until(succeeds, 'a new call succeeds');
  });

  it('reconnects at once after GOAWAY and completes calls under way', async () => {
    await until(() => test.gateway.trouble === undefined, 'the driver is ready');
    let unanswered: RawCall | undefined;
    script = (call) => {
      unanswered = call;
      call.session.goaway(constants.NGHTTP2_NO_ERROR);
    };
    const first = test.client.createVolume(volumeRequest('old'), { timeoutMs: 30_000 });
    await until(() => unanswered !== undefined, 'the first call is at the driver');
    script = (call) => answerOk(call, CREATED_VOLUME);
    await until(succeeds, 'a new call succeeds');
    if (unanswered !== undefined) answerOk(unanswered, CREATED_VOLUME);
    assert.equal((await first).volume?.volumeId, 'h');
  });
});
