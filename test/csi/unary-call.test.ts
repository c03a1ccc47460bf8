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

/** The ways in which a call can end without OK, and what the caller must be told: that the status
 * is the driver's, or that it is ambiguous. */
const ENDS: readonly {
  readonly title: string;
  readonly end: (call: RawCall) => unknown;
  readonly expected: 'driver' | 'ambiguous';
  readonly code?: number;
}[] = [
  {
    title: 'trailers with a status and nothing else',
    end: (c) => answerStatus(c, { 'grpc-status': '8' }),
    expected: 'driver',
    code: 8,
  },
  {
    title: 'trailers with a status and a message',
    end: (c) => answerStatus(c, { 'grpc-status': '3', 'grpc-message': 'bad' }),
    expected: 'driver',
    code: 3,
  },
  {
    title: 'a trailers-only status',
    end: (c) => answerTrailersOnly(c, { 'grpc-status': '9', 'grpc-message': 'x' }),
    expected: 'driver',
    code: 9,
  },
  {
    title: "the driver's own Unavailable",
    end: (c) => answerStatus(c, { 'grpc-status': '14' }),
    expected: 'driver',
    code: 14,
  },
  {
    title: "the driver's own DeadlineExceeded",
    end: (c) => answerStatus(c, { 'grpc-status': '4', 'grpc-message': 'slow pool' }),
    expected: 'driver',
    code: 4,
  },
  {
    title: 'a status with forged sutler trailers',
    end: (c) => answerStatus(c, { 'grpc-status': '5', ...FORGED }),
    expected: 'driver',
    code: 5,
  },
  {
    title: 'a code that gRPC does not define',
    end: (c) => answerStatus(c, { 'grpc-status': '77' }),
    expected: 'driver',
    code: 77,
  },
  {
    title: 'an error after a message',
    end: (c) => answerBytes(c, frameMessage(CREATED_VOLUME), { 'grpc-status': '13' }),
    expected: 'driver',
    code: 13,
  },
  {
    title: 'RST_STREAM NO_ERROR',
    end: ({ stream }) => stream.close(constants.NGHTTP2_NO_ERROR),
    expected: 'ambiguous',
  },
  {
    title: 'RST_STREAM INTERNAL_ERROR',
    end: ({ stream }) => stream.close(constants.NGHTTP2_INTERNAL_ERROR),
    expected: 'ambiguous',
  },
  {
    title: 'RST_STREAM REFUSED_STREAM',
    end: ({ stream }) => stream.close(constants.NGHTTP2_REFUSED_STREAM),
    expected: 'ambiguous',
  },
  {
    title: 'RST_STREAM CANCEL',
    end: ({ stream }) => stream.close(constants.NGHTTP2_CANCEL),
    expected: 'ambiguous',
  },
  {
    title: 'RST_STREAM ENHANCE_YOUR_CALM',
    end: ({ stream }) => stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM),
    expected: 'ambiguous',
  },
  {
    title: 'RST_STREAM INADEQUATE_SECURITY',
    end: ({ stream }) => stream.close(constants.NGHTTP2_INADEQUATE_SECURITY),
    expected: 'ambiguous',
  },
  {
    title: 'RST_STREAM after headers',
    end: ({ stream }) => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc', ...FORGED });
      setImmediate(() => stream.close(constants.NGHTTP2_INTERNAL_ERROR));
    },
    expected: 'ambiguous',
  },
  {
    title: 'RST_STREAM after a whole message',
    end: ({ stream }) => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' });
      stream.write(frameMessage(CREATED_VOLUME));
      setImmediate(() => stream.close(constants.NGHTTP2_INTERNAL_ERROR));
    },
    expected: 'ambiguous',
  },
  { title: 'a lost socket', end: ({ cut }) => cut(), expected: 'ambiguous' },
  {
    title: 'GOAWAY with an error, then the end of the connection',
    end: ({ session }) => session.destroy(undefined, constants.NGHTTP2_INTERNAL_ERROR),
    expected: 'ambiguous',
  },
  {
    title: 'HTTP 200 without a status',
    end: (c) => answerTrailersOnly(c, FORGED),
    expected: 'ambiguous',
  },
  {
    title: 'HTTP 503 with an empty body',
    end: (c) => answerTrailersOnly(c, { ':status': 503, ...FORGED }),
    expected: 'ambiguous',
  },
  {
    title: 'HTTP 500 with a status',
    end: (c) => answerTrailersOnly(c, { ':status': 500, 'grpc-status': '3' }),
    expected: 'ambiguous',
  },
  {
    title: 'an HTML error page',
    end: ({ stream }) => {
      stream.respond({ ':status': 502, 'content-type': 'text/html' });
      stream.end('<html><body>bad gateway, very bad gateway</body></html>');
    },
    expected: 'ambiguous',
  },
  {
    title: 'a status with a content type that is not gRPC',
    end: (c) => answerTrailersOnly(c, { 'content-type': 'text/html', 'grpc-status': '3' }),
    expected: 'ambiguous',
  },
  {
    title: 'trailers without a status',
    end: (c) => answerStatus(c, { 'x-a': 'b', ...FORGED }),
    expected: 'ambiguous',
  },
  {
    title: 'a status that is no number',
    end: (c) => answerStatus(c, { 'grpc-status': 'three' }),
    expected: 'ambiguous',
  },
  {
    title: 'two statuses',
    end: (c) => answerStatus(c, { 'grpc-status': ['3', '5'] }),
    expected: 'ambiguous',
  },
  {
    title: 'a negative status',
    end: (c) => answerStatus(c, { 'grpc-status': '-3' }),
    expected: 'ambiguous',
  },
  {
    title: 'a status in the first headers but no trailers',
    end: ({ stream }) => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc', 'grpc-status': '3' });
      stream.end(frameMessage(CREATED_VOLUME));
    },
    expected: 'ambiguous',
  },
  {
    title: 'a message but no trailers',
    end: ({ stream }) => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' });
      stream.end(frameMessage(CREATED_VOLUME));
    },
    expected: 'ambiguous',
  },
  {
    title: 'OK without a message',
    end: (c) => answerStatus(c, { 'grpc-status': '0' }),
    expected: 'ambiguous',
  },
  {
    title: 'a trailers-only OK',
    end: (c) => answerTrailersOnly(c, { 'grpc-status': '0' }),
    expected: 'ambiguous',
  },
  {
    title: 'OK with half a message',
    end: (c) => answerBytes(c, frameMessage(CREATED_VOLUME).subarray(0, 7), { 'grpc-status': '0' }),
    expected: 'ambiguous',
  },
  {
    title: 'OK with two messages',
    end: (c) =>
      answerBytes(c, Buffer.concat([frameMessage(CREATED_VOLUME), frameMessage(CREATED_VOLUME)]), {
        'grpc-status': '0',
      }),
    expected: 'ambiguous',
  },
  {
    title: 'OK with an unknown frame flag',
    end: (c) => answerBytes(c, Buffer.from([9, 0, 0, 0, 1, 0]), { 'grpc-status': '0' }),
    expected: 'ambiguous',
  },
  {
    title: 'a response that is too large',
    end: (c) => answerOk(c, Buffer.alloc(200_000)),
    expected: 'ambiguous',
    code: Code.ResourceExhausted,
  },
  {
    title: 'a message that can’t be decoded',
    end: (c) => answerOk(c, Buffer.from([0x0a, 0xff])),
    expected: 'ambiguous',
    code: Code.Internal,
  },
];

describe('callUnary', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: RawDriver;
  let test: Awaited<ReturnType<typeof startTestGateway>>;
  let script: (call: RawCall) => unknown = () => false;

  before(async () => {
    folder = await makeFolder();
    driver = await startRawDriver(folder.file('csi.sock'), (call) =>
      call.path.endsWith('/CreateVolume') ? script(call) : false,
    );
    test = await startTestGateway(folder, { maxMessageBytes: 100_000 });
  });
  after(async () => {
    await test.close();
    await driver.close();
    await folder.remove();
  });

  for (const { title, end, expected, code } of ENDS) {
    const status = expected === 'driver' ? 'the driver’s status' : 'ambiguous';
    it(`reports ${title} as ${status}`, async () => {
      await until(() => test.gateway.trouble === undefined, 'the driver is ready');
      script = end;
      const error = await failureOf(
        test.client.createVolume(volumeRequest('v'), { timeoutMs: 30_000 }),
      );
      assert.equal(verdict(error), expected, error.message);
      if (code !== undefined) assert.equal(error.code, code, error.message);
      assert.notEqual(error.code, Code.OK);
      if (expected === 'ambiguous')
        assert.match(error.message, /CreateVolume/, 'an ambiguous error names the method');
    });
  }

  it('reports a missing response as ambiguous after the deadline', async () => {
    await until(() => test.gateway.trouble === undefined, 'the driver is ready');
    script = () => undefined;
    const error = await failureOf(test.client.createVolume(volumeRequest('v'), { timeoutMs: 500 }));
    assert.equal(verdict(error), 'ambiguous');
    assert.equal(
      error.message,
      'rpc error: code = DeadlineExceeded desc = context deadline exceeded',
    );
  });

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
    await until(
      () =>
        test.client.createVolume(volumeRequest('new'), { timeoutMs: 30_000 }).then(
          () => true,
          () => false,
        ),
      'a new call succeeds',
    );
    if (unanswered !== undefined) answerOk(unanswered, CREATED_VOLUME);
    assert.equal((await first).volume?.volumeId, 'h');
  });
});
