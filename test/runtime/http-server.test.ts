import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { HttpServer } from '#src/runtime/http-server.ts';
import { connectTo, isClosed, sendRaw, statusesIn } from '../harness/raw-http.ts';
import { until } from '../harness/until.ts';

const REQUEST = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n';
const LARGE = Buffer.alloc(64 * 1024 * 1024);

describe('an HTTP server', () => {
  let url: string;
  let close: () => Promise<void>;
  const opened: Socket[] = [];

  before(async () => {
    const server: HttpServer = new HttpServer({ idleMs: 500 }, (request, response) => {
      if (request.url === '/known') server.identify(request.socket);
      response.end(request.url === '/large' ? LARGE : 'ok');
    });
    ({ url, close } = await server.listen('flag', '127.0.0.1:0'));
  });
  after(async () => {
    for (const socket of opened) socket.destroy();
    await close();
  });

  const open = async (): Promise<Socket> => {
    const socket = await connectTo(url);
    opened.push(socket);
    socket.resume();
    return socket;
  };

  it('ends the oldest connection of an address that has 256, unless its owner is known', async () => {
    const known = await open();
    known.write(REQUEST.replace('/', '/known'));
    await new Promise((resolve) => known.once('data', resolve));
    const oldest = await open();
    const asks = setInterval(() => known.write(REQUEST), 100);
    for (let n = 0; n < 256; n += 1) await open();
    await until(() => oldest.destroyed, 'the oldest is ended');
    assert.deepEqual(
      statusesIn(await sendRaw(url, `${REQUEST.trimEnd()}\r\nConnection: close\r\n\r\n`)),
      [200],
    );
    clearInterval(asks);
    assert.equal(known.destroyed, false);
  });

  it('ends a connection on which an answer is not read', async () => {
    const socket = await connectTo(url);
    opened.push(socket);
    socket.pause().write(REQUEST.replace('/', '/large'));
    // Without reading, the end of the connection is noticed by writing.
    const probe = setInterval(() => socket.write(' '), 200);
    await isClosed(socket);
    clearInterval(probe);
  });
});
