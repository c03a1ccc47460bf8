import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import {
  type BoardRedis,
  RIGHT,
  type RunningDashboard,
  startBoardRedis,
  startTestDashboard,
} from '../harness/dashboard-server.ts';
import { createLogger } from '#src/runtime/log.ts';
import { sendRaw, statusesIn } from '../harness/raw-http.ts';

const AUTHORIZATION = `Authorization: Basic ${Buffer.from(RIGHT.join(':')).toString('base64')}`;

describe('the dashboard’s server', () => {
  let redis: BoardRedis;
  let dashboard: RunningDashboard;
  let logged = '';

  before(async () => {
    redis = await startBoardRedis();
    dashboard = await startTestDashboard(redis.server.url, {
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

  for (const [what, ...lines] of [
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
  ] as const)
    it(`refuses ${what}, and does not answer what follows`, async () => {
      const first = ['POST /queues/x HTTP/1.1', 'Host: localhost', AUTHORIZATION, ...lines];
      const text = [...first, '', `${rest}${second}`].join('\r\n');
      const [status = 0, ...others] = statusesIn(await sendRaw(dashboard.origin, text));
      // The headers before a malformed body may be answered: they are refused too.
      assert.ok(status === 400 || status === 403, String(status));
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

  it('logs no control characters of a request', async () => {
    const forwarded = 'X-Forwarded-For: \x9b31m';
    const wrong = 'Authorization: Basic YTpi';
    for (const path of ['/\x9b31m', '/%1b%5b31m'])
      await ask(`GET ${path} HTTP/1.1`, 'Host: localhost', forwarded, wrong);
    assert.match(logged, /wrong user or password/);
    assert.doesNotMatch(logged, /[\u007f-\u009f\u00ad]|\\u00/);
  });

  it('answers 431 to headers above 16 KiB', async () => {
    const reply = await ask('GET / HTTP/1.1', 'Host: localhost', `X: ${'a'.repeat(17_000)}`);
    assert.deepEqual(statusesIn(reply), [431]);
  });
});
