import assert from 'node:assert/strict';
import { constants } from 'node:http2';
import { after, before, describe, it } from 'node:test';
import { gzipSync } from 'node:zlib';
import type { CallSettings } from '#src/csi/csi-calls.ts';
import { CsiClient } from '#src/gateway-client/client.ts';
import { Code } from '#src/csi/status.ts';
import { frameMessage } from '#src/csi/grpc-wire.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf, verdict, volumeRequest } from '../harness/csi-gateway.ts';
import {
  answerBytes,
  answerOk,
  answerStatus,
  CREATED_VOLUME,
  type RawCall,
  type RawDriver,
  startRawDriver,
} from '../harness/csi-raw-driver.ts';

/** Trailers of a gateway, here in places where no status of the driver can come with them. */
const GATEWAY_TRAILERS = {
  'sutler-driver-status': '1',
  'sutler-not-forwarded': '1',
  'sutler-full': '1',
};
const DRIVER_SAID = { 'sutler-driver-status': '1' };
const GRPC = { ':status': 200, 'content-type': 'application/grpc' };

function resetWith(code: number): (call: RawCall) => unknown {
  return ({ stream }) => stream.close(code);
}

/** Sends headers with a gateway's trailers in them, then continues. */
function sendHeadersThen(then: (call: RawCall) => unknown): (call: RawCall) => unknown {
  return (call) => {
    call.stream.respond({ ...GRPC, ...GATEWAY_TRAILERS });
    setImmediate(() => then(call));
  };
}

/** The ways in which a call ends without a status that the gateway sent, caused by a gateway that
 * fails at the worst moment. `code` is the code that the client reports. */
const MADE_UP: readonly {
  readonly title: string;
  readonly play: (call: RawCall) => unknown;
  readonly code?: number;
  /** Part of the error's text. */
  readonly text?: string;
  readonly settings?: Partial<CallSettings>;
}[] = [
  {
    title: 'RST_STREAM NO_ERROR',
    play: resetWith(constants.NGHTTP2_NO_ERROR),
    code: Code.Unavailable,
  },
  {
    title: 'RST_STREAM REFUSED_STREAM',
    play: resetWith(constants.NGHTTP2_REFUSED_STREAM),
    code: Code.Unavailable,
  },
  {
    title: 'RST_STREAM after headers',
    play: sendHeadersThen(resetWith(constants.NGHTTP2_INTERNAL_ERROR)),
    code: Code.Unavailable,
  },
  { title: 'a lost connection', play: ({ cut }) => cut(), code: Code.Unavailable },
  {
    title: 'a connection lost after headers',
    play: sendHeadersThen(({ cut }) => cut()),
    code: Code.Unavailable,
  },
  ...[400, 401, 403, 404, 429, 500, 502, 503, 504].map((http) => ({
    title: `HTTP ${http} from a proxy`,
    play: ({ stream }: RawCall) => {
      stream.respond({ ':status': http, 'content-type': 'text/html' });
      stream.end('<html>no</html>');
    },
    code: Code.Unavailable,
    text: `HTTP ${http}`,
  })),
  {
    title: 'a response that ends without trailers',
    play: ({ stream }) => {
      stream.respond({ ...GRPC, ...GATEWAY_TRAILERS });
      stream.end(frameMessage(CREATED_VOLUME));
    },
    code: Code.Unavailable,
  },
  {
    title: 'a response larger than the client accepts',
    play: (c) => answerOk(c, Buffer.alloc(5_000_000)),
    code: Code.ResourceExhausted,
  },
  {
    title: 'a response in an encoding that was not requested',
    play: (c) =>
      answerBytes(
        c,
        Buffer.from([1, 0, 0, 0, 1, 0]),
        { 'grpc-status': '0', ...DRIVER_SAID },
        { 'grpc-encoding': 'snappy' },
      ),
  },
  {
    title: 'a gzip response, which was not asked for',
    play: (c) => {
      const packed = frameMessage(gzipSync(CREATED_VOLUME));
      packed[0] = 1;
      answerBytes(c, packed, { 'grpc-status': '0', ...DRIVER_SAID }, { 'grpc-encoding': 'gzip' });
    },
    code: Code.Internal,
  },
  {
    title: 'the deadline',
    play: () => undefined,
    code: Code.DeadlineExceeded,
    settings: { timeoutMs: 500 },
  },
  {
    title: 'the deadline after headers',
    play: sendHeadersThen(() => undefined),
    code: Code.DeadlineExceeded,
    settings: { timeoutMs: 500 },
  },
];

const HEALTH = '/grpc.health.v1.Health/Check';
const callsOf = ({ calls }: RawDriver): number =>
  calls.filter(({ path }) => path !== HEALTH).length;

describe('a call without a status of the gateway', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let gateway: RawDriver;
  let client: CsiClient;
  let play: (call: RawCall) => unknown = () => false;
  before(async () => {
    folder = await makeFolder();
    // It has no health service, which tells the time at the beginning of a connection.
    gateway = await startRawDriver(folder.file('gw.sock'), (call) =>
      call.path === HEALTH ? answerStatus(call, { 'grpc-status': '12' }) : play(call),
    );
    client = new CsiClient({
      address: { kind: 'unix', path: folder.file('gw.sock') },
    });
  });
  after(async () => {
    client.close();
    await gateway.close();
    await folder.remove();
  });

  for (const { title, play: script, code, text, settings } of MADE_UP) {
    it(`is ambiguous and names the method: ${title}`, async () => {
      play = script;
      const before = callsOf(gateway);
      const error = await failureOf(
        client.createVolume(volumeRequest('v'), { timeoutMs: 30_000, ...settings }),
      );
      assert.equal(verdict(error), 'ambiguous', error.message);
      assert.equal(error.method, '/csi.v1.Controller/CreateVolume');
      assert.notEqual(error.code, Code.OK, 'a missing response is not success');
      if (code !== undefined) assert.equal(error.code, code, error.message);
      assert.ok(error.message.includes(text ?? ''), error.message);
      assert.equal(callsOf(gateway), before + 1, 'how often it was sent');
    });
  }

  it('is ambiguous and names the method: a cancellation', async () => {
    const cancelled = new AbortController();
    play = () => cancelled.abort();
    const error = await failureOf(
      client.createVolume(volumeRequest('v'), { timeoutMs: 30_000, signal: cancelled.signal }),
    );
    assert.equal(verdict(error), 'ambiguous');
    assert.equal(error.code, Code.Canceled);
  });

  it('is ambiguous and names the method: a client closed during the call', async () => {
    const other = new CsiClient({
      address: { kind: 'unix', path: folder.file('gw.sock') },
    });
    play = ({ cut }) => {
      other.close();
      cut();
    };
    const error = await failureOf(other.createVolume(volumeRequest('v'), { timeoutMs: 30_000 }));
    assert.equal(verdict(error), 'ambiguous');
  });
});
