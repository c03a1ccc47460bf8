import assert from 'node:assert/strict';
import { gzipSync } from 'node:zlib';
import { after, before, describe, it } from 'node:test';
import {
  type BoardRedis,
  form,
  PASSWORD,
  RIGHT,
  type RunningDashboard,
  startBoardRedis,
  startTestDashboard,
  USER,
} from '../harness/dashboard-server.ts';
import { createLogger } from '#src/runtime/log.ts';
import { connectTo, sendRaw, statusesIn } from '../harness/raw-http.ts';
import { until } from '../harness/until.ts';

const AUTHORIZATION = `Authorization: Basic ${Buffer.from(RIGHT.join(':')).toString('base64')}`;

describe('the dashboard’s server', () => {
  let redis: BoardRedis;
  let dashboard: RunningDashboard;
  let logged = '';

  before(async () => {
    redis = await startBoardRedis();
    dashboard = await startTestDashboard(redis.server.url, {
      hosts: ['dashboard.example.com'],
      allowActions: true,
      log: createLogger({
        name: 'test',
        verbosity: 0,
        format: 'json',
        write: (line) => (logged += line),
      }),
    });
  });
  after(async () => {
    await dashboard.close();
    await redis.close();
  });

  /** Sends a request line and header lines, with nothing added, and "Connection: close". */
  const ask = (...lines: readonly string[]): Promise<string> =>
    sendRaw(dashboard.origin, [...lines, 'Connection: close', '', ''].join('\r\n'));

  for (const host of ['localhost:41000', '[::1]:8088', 'dashboard.example.com'])
    it(`serves the host ${host}`, async () => {
      const reply = await ask('GET /queues/ HTTP/1.1', `Host: ${host}`, AUTHORIZATION);
      assert.deepEqual(statusesIn(reply), [200]);
    });

  for (const host of ['evil.example', 'evil.example:8088', '127.0.0.1.evil.example', ''])
    it(`answers 421 to the host "${host}", even with the right password`, async () => {
      for (const path of ['/queues/', '/login', '/queues/static/favicon.ico']) {
        const reply = await ask(`GET ${path} HTTP/1.1`, `Host: ${host}`, AUTHORIZATION);
        assert.deepEqual(statusesIn(reply), [421], path);
        assert.match(reply, /start it with --dashboard-hosts=NAME/);
        assert.ok(host === '' || !reply.includes('evil'));
      }
    });

  it('answers 421 to a request without a host', async () =>
    assert.deepEqual(statusesIn(await ask('GET /queues/ HTTP/1.0', AUTHORIZATION)), [421]));

  it('does not believe X-Forwarded-Host', async () => {
    const forwarded = 'X-Forwarded-Host: localhost';
    const reply = await ask('GET /queues/ HTTP/1.1', 'Host: evil.example', forwarded);
    assert.deepEqual(statusesIn(reply), [421]);
  });

  for (const [what, ...lines] of [
    ['two hosts', 'GET /queues/ HTTP/1.1', 'Host: localhost', 'Host: evil.example'],
    ['a whole URL as its path', 'GET http://evil.example/queues/ HTTP/1.1', 'Host: localhost'],
    ['a star as its path', 'OPTIONS * HTTP/1.1', 'Host: localhost'],
    ['C1 control characters in its path', 'GET /\x9b31m HTTP/1.1', 'Host: localhost'],
  ] as const)
    it(`refuses a request with ${what}`, async () =>
      assert.deepEqual(statusesIn(await ask(...lines, AUTHORIZATION)), [400]));

  const second = `PUT /queues/api/queues/q/promote HTTP/1.1\r\nHost: localhost\r\n${AUTHORIZATION}\r\n\r\n`;
  const chunked = 'Transfer-Encoding: chunked';
  for (const [what, lines, rest] of [
    ['both lengths', ['Content-Length: 4', chunked], '0\r\n\r\n'],
    ['an unknown coding', ['Transfer-Encoding: xchunked'], ''],
    ['two codings', ['Transfer-Encoding: identity', chunked], '0\r\n\r\n'],
  ] as const)
    it(`refuses ${what}, and does not answer what follows`, async () => {
      const first = ['POST /queues/x HTTP/1.1', 'Host: localhost', AUTHORIZATION, ...lines];
      const text = [...first, '', `${rest}${second}`].join('\r\n');
      const [status = 0, ...others] = statusesIn(await sendRaw(dashboard.origin, text));
      // The headers before a malformed chunk may be answered: they are refused too.
      assert.ok(status === 400 || (rest !== '' && status === 403), String(status));
      assert.deepEqual(others, []);
    });

  it('serves no file outside the board’s own', async () => {
    const ups = ['..', '%2e%2e', '.%2e', '%252e%252e'];
    const separators = ['/', '%2f', '%5c', '%252f'];
    const paths = ups.flatMap((up) =>
      separators.flatMap((separator) =>
        [5, 6, 7].map((depth) => `${`${up}${separator}`.repeat(depth)}package.json`),
      ),
    );
    const others = ['%00package.json', '//etc/passwd', '%2fetc%2fpasswd', 'x.js%00.css', '.env'];
    for (const path of [...paths, ...others]) {
      const line = `GET /queues/static/${path} HTTP/1.1`;
      const reply = await ask(line, 'Host: localhost', AUTHORIZATION);
      assert.ok([400, 403, 404].includes(statusesIn(reply)[0] ?? 0), `${path}: ${reply}`);
      assert.doesNotMatch(reply, /"dependencies"|root:/, path);
    }
  });

  it('puts nothing of a path into the headers of its answer unencoded', async () => {
    const reply = await ask(
      'GET /queues/%0d%0aSet-Cookie:%20a=b HTTP/1.1',
      'Host: localhost',
      'Accept: text/html',
    );
    assert.deepEqual(statusesIn(reply), [303]);
    assert.match(reply, /^location: \/login\?next=[\w%.-]+\r$/im);
    assert.doesNotMatch(reply, /^set-cookie/im);
  });

  it('logs no control characters of a request', async () => {
    const reply = await ask(
      'PUT /queues/api/queues/%1b%5b31m/promote HTTP/1.1',
      'Host: localhost',
      'Origin: http://\x9b31m\x7f.example',
      'X-Forwarded-For: \x9b31m',
      AUTHORIZATION,
    );
    assert.deepEqual(statusesIn(reply), [400]);
    const other = await ask(
      'PUT /queues/api/queues/%1b%5b31m/promote HTTP/1.1',
      'Host: localhost',
      'Origin: http://\x9b31m\xad.example',
      'X-Forwarded-For: \x9b31m',
      AUTHORIZATION,
    );
    assert.deepEqual(statusesIn(other), [403]);
    assert.match(logged, /not from its own pages/);
    assert.doesNotMatch(logged, /[\u007f-\u009f\u00ad]|\\u00/);
  });

  it('answers 431 to headers above 8 KiB', async () => {
    const reply = await ask('GET /login HTTP/1.1', 'Host: localhost', `X: ${'a'.repeat(9000)}`);
    assert.deepEqual(statusesIn(reply), [431]);
  });

  it('answers 413 to a body above 16 KiB, and to a login above 4 kB', async () => {
    const send = (path: string, bytes: number) =>
      dashboard.send(path, { ...form({ user: 'a'.repeat(bytes) }), basic: RIGHT });
    assert.equal((await send('/queues/api/queues/q/promote', 17_000)).status, 413);
    assert.equal((await send('/login', 5_000)).status, 413);
  });

  it('does not unpack a compressed login', async () => {
    const { headers, body = '' } = form({ user: USER, password: PASSWORD });
    const reply = await fetch(`${dashboard.origin}/login`, {
      method: 'POST',
      headers: { ...headers, 'content-encoding': 'gzip' },
      body: gzipSync(body),
    });
    await reply.arrayBuffer();
    assert.equal(reply.status, 415);
  });

  it('answers while somebody holds 300 connections, and ends the oldest of them', async () => {
    const held = await Promise.all(Array.from({ length: 300 }, () => connectTo(dashboard.origin)));
    assert.deepEqual(statusesIn(await ask('GET /login HTTP/1.1', 'Host: localhost')), [200]);
    await until(() => held.filter(({ destroyed }) => destroyed).length >= 44, 'some are ended');
    for (const socket of held) socket.destroy();
  });
});
