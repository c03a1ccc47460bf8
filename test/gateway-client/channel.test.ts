import assert from 'node:assert/strict';
import { createServer, type Http2Server, type ServerHttp2Stream } from 'node:http2';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { frameMessage } from '#src/csi/grpc-wire.ts';
import { Code } from '#src/csi/status.ts';
import { CsiClient } from '#src/gateway-client/client.ts';
import { failureOf, verdict } from '../harness/csi-gateway.ts';
import { until } from '../harness/until.ts';

const SETTINGS = { timeoutMs: 60_000 };

function answer(stream: ServerHttp2Stream): void {
  const headers = { ':status': 200, 'content-type': 'application/grpc' };
  stream.respond(headers, { waitForTrailers: true });
  stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
  stream.end(frameMessage(new Uint8Array(0)));
}

describe('the connection to a gateway', () => {
  let server: Http2Server;
  let client: CsiClient;
  let sockets: Socket[];
  let streams: ServerHttp2Stream[];
  let onStream: (stream: ServerHttp2Stream) => unknown;

  beforeEach(async () => {
    sockets = [];
    streams = [];
    onStream = answer;
    server = createServer();
    server.on('connection', (socket: Socket) => sockets.push(socket));
    server.on('stream', (stream, headers) => {
      stream.on('error', () => undefined);
      if (headers[':path'] === '/grpc.health.v1.Health/Check') return answer(stream);
      streams.push(stream);
      onStream(stream);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    client = new CsiClient({ address: { kind: 'tcp', host: '127.0.0.1', port } });
  });
  afterEach(async () => {
    client.close();
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });

  it('is replaced after a GOAWAY, and the call under way still ends', async () => {
    onStream = () => undefined;
    const first = client.probe(SETTINGS);
    await until(() => streams.length === 1, 'the call has arrived');
    streams[0]?.session?.goaway();
    onStream = answer;
    await until(async () => {
      // A call that crosses the GOAWAY fails.
      await client.probe(SETTINGS).catch(() => undefined);
      return sockets.length === 2;
    }, 'a new connection is used');
    if (streams[0] !== undefined) answer(streams[0]);
    await first;
  });

  it('is closed when a ping gets no answer during a call', async (t) => {
    await client.probe(SETTINGS);
    client.close();
    const { port } = server.address() as AddressInfo;
    t.mock.timers.enable({ apis: ['setInterval', 'setTimeout'] });
    const other = new CsiClient({
      address: { kind: 'tcp', host: '127.0.0.1', port },
    });
    const arrived = new Promise<void>((resolve) => (onStream = () => resolve()));
    const call = failureOf(other.probe(SETTINGS));
    await arrived;
    for (const socket of sockets) socket.pause();
    t.mock.timers.tick(20_000);
    t.mock.timers.tick(10_000);
    const error = await call;
    other.close();
    assert.equal(error.code, Code.Unavailable);
    assert.equal(verdict(error), 'ambiguous');
    assert.match(error.details, /no answer to a ping within 10000 ms/);
  });
});
