import { createServer } from 'node:http';
import type { Socket } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { listenHttp } from '#src/runtime/http-server.ts';
import { connectTo, isClosed } from '../harness/raw-http.ts';

const REQUEST = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n';
const LARGE = Buffer.alloc(64 * 1024 * 1024);

describe('an HTTP server', () => {
  const server = createServer((request, response) => {
    response.end(request.url === '/large' ? LARGE : 'ok');
  });
  let url: string;
  let close: () => Promise<void>;
  const opened: Socket[] = [];

  before(async () => {
    ({ url, close } = await listenHttp(server, 'flag', '127.0.0.1:0', 500));
  });
  after(async () => {
    for (const socket of opened) socket.destroy();
    await close();
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

  it('goes on after a connection that it could not accept', () => {
    server.emit('error', new Error('accept ENOMEM'));
  });
});
