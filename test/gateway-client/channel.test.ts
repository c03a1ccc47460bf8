import assert from 'node:assert/strict';
import { createServer, type ServerHttp2Stream } from 'node:http2';
import type { AddressInfo, Socket } from 'node:net';
import { it } from 'node:test';
import { frameMessage } from '#src/csi/grpc-wire.ts';
import { Code } from '#src/csi/status.ts';
import { CsiClient } from '#src/gateway-client/client.ts';
import { failureOf, verdict } from '../harness/csi-gateway.ts';

function answer(stream: ServerHttp2Stream): void {
  const headers = { ':status': 200, 'content-type': 'application/grpc' };
  stream.respond(headers, { waitForTrailers: true });
  stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
  stream.end(frameMessage(new Uint8Array(0)));
}

it('the connection to a gateway is closed when a ping gets no answer during a call', async (t) => {
  const sockets: Socket[] = [];
  const server = createServer();
  server.on('connection', (socket: Socket) => sockets.push(socket));
  const arrived = new Promise<void>((resolve) => {
    server.on('stream', (stream, headers) => {
      stream.on('error', () => undefined);
      if (headers[':path'] === '/grpc.health.v1.Health/Check') answer(stream);
      else resolve();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  t.mock.timers.enable({ apis: ['setInterval', 'setTimeout'] });
  const client = new CsiClient({ address: { kind: 'tcp', host: '127.0.0.1', port } });
  const call = failureOf(client.probe({ timeoutMs: 60_000 }));
  await arrived;
  for (const socket of sockets) socket.pause();
  t.mock.timers.tick(20_000);
  t.mock.timers.tick(10_000);
  const error = await call;
  client.close();
  assert.deepEqual([error.code, verdict(error)], [Code.Unavailable, 'ambiguous']);
  assert.match(error.details, /no answer to a ping within 10000 ms/);
});
