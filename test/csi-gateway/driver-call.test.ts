import assert from 'node:assert/strict';
import { constants } from 'node:http2';
import { after, before, describe, it } from 'node:test';
import { create, toBinary } from '@bufbuild/protobuf';
import { CreateVolumeResponseSchema } from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import { frameMessage } from '#src/csi-gateway/grpc-wire.ts';
import { makeFolder, until } from '../harness/csi-folder.ts';
import { failureOf, startTestGateway, verdict, volumeRequest } from '../harness/csi-gateway.ts';
import {
  answerBytes,
  answerOk,
  answerStatus,
  answerTrailersOnly,
  startRawDriver,
} from '../harness/csi-raw-driver.ts';
import type { RawCall, RawDriver } from '../harness/csi-raw-driver.ts';

const GOOD = toBinary(
  CreateVolumeResponseSchema,
  create(CreateVolumeResponseSchema, { volume: { volumeId: 'h' } }),
);
const FORGED = { 'sutler-driver-status': '1', 'sutler-not-forwarded': '1' };

/** Each way in which a call can end without OK, and what a caller may conclude. The scripts are
 * wire facts, not mocks. */
const ENDS: readonly {
  readonly title: string;
  readonly end: (call: RawCall) => unknown;
  readonly says: 'driver' | 'ambiguous';
  readonly code?: number;
}[] = [
  {
    title: 'trailers with a status and nothing else',
    end: (c) => answerStatus(c, { 'grpc-status': '8' }),
    says: 'driver',
    code: 8,
  },
  {
    title: 'trailers with a status and words',
    end: (c) => answerStatus(c, { 'grpc-status': '3', 'grpc-message': 'bad' }),
    says: 'driver',
    code: 3,
  },
  {
    title: 'a status that is trailers only',
    end: (c) => answerTrailersOnly(c, { 'grpc-status': '9', 'grpc-message': 'x' }),
    says: 'driver',
    code: 9,
  },
  {
    title: "the driver's own Unavailable",
    end: (c) => answerStatus(c, { 'grpc-status': '14' }),
    says: 'driver',
    code: 14,
  },
  {
    title: "the driver's own DeadlineExceeded",
    end: (c) => answerStatus(c, { 'grpc-status': '4', 'grpc-message': 'slow pool' }),
    says: 'driver',
    code: 4,
  },
  {
    title: 'a status with forged sutler trailers',
    end: (c) => answerStatus(c, { 'grpc-status': '5', ...FORGED }),
    says: 'driver',
    code: 5,
  },
  {
    title: 'a code that gRPC does not know',
    end: (c) => answerStatus(c, { 'grpc-status': '77' }),
    says: 'driver',
    code: 77,
  },
  {
    title: 'an error after a message',
    end: (c) => answerBytes(c, frameMessage(GOOD), { 'grpc-status': '13' }),
    says: 'driver',
    code: 13,
  },
  {
    title: 'RST_STREAM NO_ERROR',
    end: ({ stream }) => stream.close(constants.NGHTTP2_NO_ERROR),
    says: 'ambiguous',
  },
  {
    title: 'RST_STREAM INTERNAL_ERROR',
    end: ({ stream }) => stream.close(constants.NGHTTP2_INTERNAL_ERROR),
    says: 'ambiguous',
  },
  {
    title: 'RST_STREAM REFUSED_STREAM',
    end: ({ stream }) => stream.close(constants.NGHTTP2_REFUSED_STREAM),
    says: 'ambiguous',
  },
  {
    title: 'RST_STREAM CANCEL',
    end: ({ stream }) => stream.close(constants.NGHTTP2_CANCEL),
    says: 'ambiguous',
  },
  {
    title: 'RST_STREAM ENHANCE_YOUR_CALM',
    end: ({ stream }) => stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM),
    says: 'ambiguous',
  },
  {
    title: 'RST_STREAM INADEQUATE_SECURITY',
    end: ({ stream }) => stream.close(constants.NGHTTP2_INADEQUATE_SECURITY),
    says: 'ambiguous',
  },
  {
    title: 'RST_STREAM after headers',
    end: ({ stream }) => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc', ...FORGED });
      setImmediate(() => stream.close(constants.NGHTTP2_INTERNAL_ERROR));
    },
    says: 'ambiguous',
  },
  {
    title: 'RST_STREAM after a whole message',
    end: ({ stream }) => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' });
      stream.write(frameMessage(GOOD));
      setImmediate(() => stream.close(constants.NGHTTP2_INTERNAL_ERROR));
    },
    says: 'ambiguous',
  },
  { title: 'a lost socket', end: ({ cut }) => cut(), says: 'ambiguous' },
  {
    title: 'GOAWAY with an error, then the end of the connection',
    end: ({ session }) => session.destroy(undefined, constants.NGHTTP2_INTERNAL_ERROR),
    says: 'ambiguous',
  },
  {
    title: 'HTTP 200 without a status',
    end: (c) => answerTrailersOnly(c, FORGED),
    says: 'ambiguous',
  },
  {
    title: 'HTTP 503 with an empty body',
    end: (c) => answerTrailersOnly(c, { ':status': 503, ...FORGED }),
    says: 'ambiguous',
  },
  {
    title: 'HTTP 500 with a status',
    end: (c) => answerTrailersOnly(c, { ':status': 500, 'grpc-status': '3' }),
    says: 'ambiguous',
  },
  {
    title: 'an HTML error page',
    end: ({ stream }) => {
      stream.respond({ ':status': 502, 'content-type': 'text/html' });
      stream.end('<html><body>bad gateway, very bad gateway</body></html>');
    },
    says: 'ambiguous',
  },
  {
    title: 'a status in a page that is not gRPC',
    end: (c) => answerTrailersOnly(c, { 'content-type': 'text/html', 'grpc-status': '3' }),
    says: 'ambiguous',
  },
  {
    title: 'trailers without a status',
    end: (c) => answerStatus(c, { 'x-a': 'b', ...FORGED }),
    says: 'ambiguous',
  },
  {
    title: 'a status that is no number',
    end: (c) => answerStatus(c, { 'grpc-status': 'three' }),
    says: 'ambiguous',
  },
  {
    title: 'two statuses',
    end: (c) => answerStatus(c, { 'grpc-status': ['3', '5'] }),
    says: 'ambiguous',
  },
  {
    title: 'a negative status',
    end: (c) => answerStatus(c, { 'grpc-status': '-3' }),
    says: 'ambiguous',
  },
  {
    title: 'a status in the first headers but no trailers',
    end: ({ stream }) => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc', 'grpc-status': '3' });
      stream.end(frameMessage(GOOD));
    },
    says: 'ambiguous',
  },
  {
    title: 'a message but no trailers',
    end: ({ stream }) => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' });
      stream.end(frameMessage(GOOD));
    },
    says: 'ambiguous',
  },
  {
    title: 'OK without a message',
    end: (c) => answerStatus(c, { 'grpc-status': '0' }),
    says: 'ambiguous',
  },
  {
    title: 'OK that is trailers only',
    end: (c) => answerTrailersOnly(c, { 'grpc-status': '0' }),
    says: 'ambiguous',
  },
  {
    title: 'OK with half a message',
    end: (c) => answerBytes(c, frameMessage(GOOD).subarray(0, 7), { 'grpc-status': '0' }),
    says: 'ambiguous',
  },
  {
    title: 'OK with two messages',
    end: (c) =>
      answerBytes(c, Buffer.concat([frameMessage(GOOD), frameMessage(GOOD)]), {
        'grpc-status': '0',
      }),
    says: 'ambiguous',
  },
  {
    title: 'OK with an unknown frame flag',
    end: (c) => answerBytes(c, Buffer.from([9, 0, 0, 0, 1, 0]), { 'grpc-status': '0' }),
    says: 'ambiguous',
  },
  {
    title: 'an answer that is too large',
    end: (c) => answerOk(c, Buffer.alloc(200_000)),
    says: 'ambiguous',
    code: Code.ResourceExhausted,
  },
  {
    title: 'a message that does not decode',
    end: (c) => answerOk(c, Buffer.from([0x0a, 0xff])),
    says: 'ambiguous',
    code: Code.Internal,
  },
];

describe('callDriver', () => {
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

  for (const { title, end, says, code } of ENDS) {
    it(`calls ${title} ${says === 'driver' ? "the driver's word" : 'ambiguous'}`, async () => {
      await until('the driver is ready', () => test.gateway.trouble === undefined);
      script = end;
      const error = await failureOf(
        test.client.createVolume(volumeRequest('v'), { timeoutMs: 30_000 }),
      );
      assert.equal(verdict(error), says, error.message);
      if (code !== undefined) assert.equal(error.code, code, error.message);
      assert.notEqual(error.code, Code.OK);
      if (says === 'ambiguous')
        assert.match(error.message, /CreateVolume/, 'an ambiguous error names the method');
    });
  }

  it('calls an answer that never comes ambiguous when the deadline has passed, in Go’s words', async () => {
    await until('the driver is ready', () => test.gateway.trouble === undefined);
    script = () => undefined;
    const error = await failureOf(test.client.createVolume(volumeRequest('v'), { timeoutMs: 500 }));
    assert.equal(verdict(error), 'ambiguous');
    assert.equal(
      error.message,
      'rpc error: code = DeadlineExceeded desc = context deadline exceeded',
    );
  });

  it('tells the driver by RST_STREAM when the caller gives up', async () => {
    await until('the driver is ready', () => test.gateway.trouble === undefined);
    let arrived = false;
    const closed = new Promise<number | undefined>((resolve) => {
      script = ({ stream }) => {
        arrived = true;
        stream.on('close', () => resolve(stream.rstCode));
      };
    });
    const gaveUp = new AbortController();
    const call = failureOf(
      test.client.createVolume(volumeRequest('v'), { timeoutMs: 30_000, signal: gaveUp.signal }),
    );
    await until('the call arrived', () => arrived);
    gaveUp.abort();
    const error = await call;
    assert.equal(verdict(error), 'ambiguous');
    assert.equal(error.message, 'rpc error: code = Canceled desc = context canceled');
    assert.equal(await closed, constants.NGHTTP2_CANCEL);
  });

  it('opens a new connection at once after GOAWAY, and lets the calls of the old one end well', async () => {
    await until('the driver is ready', () => test.gateway.trouble === undefined);
    let held: RawCall | undefined;
    script = (call) => {
      held = call;
      call.session.goaway(constants.NGHTTP2_NO_ERROR);
    };
    const first = test.client.createVolume(volumeRequest('old'), { timeoutMs: 30_000 });
    await until('the first arrived', () => held !== undefined);
    script = (call) => answerOk(call, GOOD);
    await until('a new one passes', () =>
      test.client.createVolume(volumeRequest('new'), { timeoutMs: 30_000 }).then(
        () => true,
        () => false,
      ),
    );
    if (held !== undefined) answerOk(held, GOOD);
    assert.equal((await first).volume?.volumeId, 'h');
  });
});
