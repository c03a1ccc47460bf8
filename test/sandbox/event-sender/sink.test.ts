import assert from 'node:assert/strict';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { openSink } from '../../../sandbox/event-sender/sink.ts';

const event = { headers: { 'ce-id': 'an-id', 'content-type': 'application/json' }, body: '{}' };

describe('openSink', () => {
  it('sends an event once if it is taken, with the token', async (t) => {
    const { send, requests } = await open(t, [202]);
    assert.equal(await send(), undefined);
    assert.equal(requests.length, 1);
    assert.equal(requests[0]?.authorization, 'Bearer secret');
    assert.equal(requests[0]['ce-id'], 'an-id');
  });

  for (const code of [404, 413, 425, 429, 502, 503, 504])
    it(`sends an event again after ${code}`, async (t) => {
      const { send, requests } = await open(t, [code, 202]);
      assert.equal(await send(), undefined);
      assert.equal(requests.length, 2);
    });

  for (const code of [301, 400, 401, 403, 408, 409, 500])
    it(`drops an event at once after ${code}`, async (t) => {
      const { send, requests } = await open(t, [code, 202]);
      assert.equal(await send(), `HTTP ${code}`);
      assert.equal(requests.length, 1);
    });

  it('drops an event after six attempts within 3.1 s', async (t) => {
    const { send, requests, pausesMs } = await open(t, [503]);
    assert.equal(await send(), 'HTTP 503');
    assert.equal(requests.length, 6);
    assert.deepEqual(pausesMs, [100, 200, 400, 800, 1600]);
  });

  it('sends an event again if the connection fails', async (t) => {
    const { send, pausesMs, closeServer } = await open(t, [202]);
    await closeServer();
    assert.match((await send()) ?? '', /ECONNREFUSED/);
    assert.equal(pausesMs.length, 5);
  });
});

/** A sink that answers with these codes, the last one from then on. */
async function open(t: TestContext, codes: readonly number[]) {
  const requests: IncomingHttpHeaders[] = [];
  const server = createServer((request, response) => {
    const code = codes[Math.min(requests.length, codes.length - 1)] ?? 500;
    requests.push(request.headers);
    request.resume().on('end', () => response.writeHead(code, { location: '/' }).end());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const closeServer = async (): Promise<void> => {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
  const pausesMs: number[] = [];
  const clock = {
    nowMs: () => 0,
    sleep: (ms: number) => {
      pausesMs.push(ms);
      return Promise.resolve();
    },
  };
  const sink = openSink({ url: `http://127.0.0.1:${port}/events`, ca: '', token: 'secret', clock });
  t.after(async () => {
    await sink.close();
    await closeServer();
  });
  const send = () => sink.send(event, new AbortController().signal);
  return { send, requests, pausesMs, closeServer };
}
