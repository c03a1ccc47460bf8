import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, describe, it } from 'node:test';
import { createLimitedServer } from '#src/runtime/limited-server.ts';
import { listenHttp } from '#src/runtime/listen-http.ts';
import { connectTo, isClosed, sendRaw, statusesIn } from '../harness/raw-http.ts';

const REQUEST = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n';
const LARGE = Buffer.alloc(64 * 1024 * 1024);

describe('a limited server', { concurrency: true }, () => {
  let server: Awaited<ReturnType<typeof listenHttp>>;

  before(async () => {
    const limited = createLimitedServer({ answerMs: 500 }, ({ url }, response) => {
      if (url !== '/never') response.end(url === '/large' ? LARGE : 'ok');
    });
    server = await listenHttp(limited, 'flag', '127.0.0.1:0');
  });
  after(() => server.close());

  /** Writes, and reads nothing.
   * @returns how long the server kept the connection */
  const keptMs = async (text: string): Promise<number> => {
    const socket = await connectTo(server.url);
    const startedMs = Date.now();
    const closed = isClosed(socket);
    const trickle = setInterval(() => socket.write('a'), 500);
    if (text === '') clearInterval(trickle);
    else socket.write(text);
    socket.resume();
    await closed;
    clearInterval(trickle);
    return Date.now() - startedMs;
  };

  it('ends a connection that sends nothing', async () => assert.ok((await keptMs('')) < 8000));

  it('ends a connection whose headers come byte by byte', async () =>
    assert.ok((await keptMs('GET / HTTP/1.1\r\nX: ')) < 8000));

  it('ends a connection whose body comes byte by byte', async () => {
    const head = 'POST /never HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n';
    assert.ok((await keptMs(head)) < 13_000);
  });

  it('hands a body on in large parts, and what follows it in small ones', async () => {
    const parts: number[] = [];
    let requests = 0;
    const limited = createLimitedServer({ answerMs: 500 }, (request) => {
      request.on('data', ({ length }: Buffer) => parts.push(length));
    });
    limited.on('request', () => (requests += 1));
    const other = await listenHttp(limited, 'flag', '127.0.0.1:0');
    const head = `POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n`;
    await sendRaw(other.url, head + 'a'.repeat(100_000) + REQUEST.repeat(1_000));
    await other.close();
    assert.equal(
      parts.reduce((sum, bytes) => sum + bytes, 0),
      100_000,
    );
    assert.ok(parts.length < 50, `${parts.length} parts`);
    assert.ok(requests > 8 && requests < 50, `${requests} requests`);
  });

  it('ends a connection that reads an answer slowly', async () => {
    const socket = await connectTo(server.url);
    socket.write(REQUEST.replace('/', '/large'));
    await once(socket, 'readable');
    const startedMs = Date.now();
    let bytes = 0;
    const trickle = setInterval(
      () => (bytes += (socket.read(1000) as Buffer | null)?.length ?? 0),
      20,
    );
    // Without reading, the end of the connection is noticed by writing.
    const probe = setInterval(() => socket.write(' '), 100);
    await isClosed(socket);
    clearInterval(trickle);
    clearInterval(probe);
    assert.ok(Date.now() - startedMs < 3000);
    assert.ok(bytes < LARGE.length);
  });

  it('ends a connection with more than eight requests at once', async () => {
    const reply = await sendRaw(server.url, REQUEST.replace('/', '/never').repeat(9));
    assert.deepEqual(statusesIn(reply), []);
  });

  it('answers requests one after the other on one connection', async () => {
    const socket = await connectTo(server.url);
    for (let i = 0; i < 20; i += 1) {
      socket.write(REQUEST);
      const [data] = (await once(socket, 'data')) as [Buffer];
      assert.deepEqual(statusesIn(data.toString()), [200]);
    }
    socket.destroy();
  });
});
