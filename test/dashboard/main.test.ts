import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { request } from 'undici';
import { main } from '#src/dashboard/main.ts';
import { until } from '../harness/until.ts';
import { PREFIX, startBoardRedis, type BoardRedis } from '../harness/dashboard-server.ts';

type Facts = Readonly<Record<string, string>>;

/** Runs the dashboard process within this one. */
function run(argv: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const signals = new EventEmitter();
  let err = '';
  let tell: (facts: Facts) => void = () => undefined;
  const announced = new Promise<Facts>((resolve) => (tell = resolve));
  const exited = once(signals, 'exit').then(([code]) => Number(code));
  void main({
    argv,
    known: {},
    host: {
      argv: [],
      env,
      pid: 1,
      stdout: { write: () => undefined },
      stderr: { write: (text) => (err += text) },
      on: (event, listener) => signals.on(event, listener),
      exit: (code) => signals.emit('exit', code),
      send: (message) => tell((message as { facts: Facts }).facts),
    },
  });
  return {
    announced,
    exited,
    log: () => err,
    stop: async () => {
      signals.emit('SIGTERM');
      assert.equal(await exited, 0);
    },
  };
}

describe('dashboard', () => {
  let redis: BoardRedis;
  before(async () => {
    redis = await startBoardRedis();
  });
  after(() => redis.close());

  it('generates a password, logs it once and accepts it', async () => {
    const process = run([
      `--redis-url=${redis.server.url}`,
      `--redis-prefix=${PREFIX}`,
      '--dashboard-address=127.0.0.1:0',
    ]);
    const { dashboard = '', user, password = '' } = await process.announced;
    assert.match(password, /^[\w-]{20}$/);
    assert.equal(process.log().split(password).length - 1, 1);
    const authorization = `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
    const reply = await request(dashboard, { headers: { authorization } });
    await reply.body.dump();
    assert.ok([200, 503].includes(reply.statusCode));
    await process.stop();
  });

  it('takes a password from its variable and never logs it', async () => {
    const process = run(
      [`--redis-url=${redis.server.url}`, '--dashboard-address=127.0.0.1:0', '--v=6'],
      {
        SUTLER_DASHBOARD_PASSWORD: 'from-the-environment',
      },
    );
    const facts = await process.announced;
    assert.equal(facts['password'], undefined);
    assert.doesNotMatch(process.log(), /from-the-environment/);
    await process.stop();
  });

  it('starts without Redis and reports it in /readyz', async () => {
    const process = run([
      '--redis-url=redis://127.0.0.1:1',
      '--dashboard-address=127.0.0.1:0',
      '--http-endpoint=127.0.0.1:0',
    ]);
    const { http = '' } = await process.announced;
    const ready = await request(`${http}/readyz`);
    assert.equal(ready.statusCode, 503);
    assert.match(await ready.body.text(), /\[-\]redis: Redis at 127\.0\.0\.1:1/);
    const metrics = await request(`${http}/metrics`);
    assert.match(await metrics.body.text(), /^sutler_dashboard_logins_total\{result="ok"\} 0$/m);
    await process.stop();
  });

  it('reports in /readyz what Redis refuses, and that it ended', async () => {
    const running = run([
      `--redis-url=${redis.server.url}`,
      '--dashboard-address=127.0.0.1:0',
      '--http-endpoint=127.0.0.1:0',
    ]);
    const { http = '' } = await running.announced;
    const readiness = async (): Promise<string> => (await fetch(`${http}/readyz`)).text();
    await redis.redis.config('SET', 'replica-serve-stale-data', 'no');
    await redis.redis.replicaof('127.0.0.1', 1);
    await until(
      async () => /redis: .*MASTERDOWN.*name the master/.test(await readiness()),
      'it is reported',
    );
    await redis.redis.replicaof('NO', 'ONE');
    await until(async () => (await fetch(`${http}/readyz`)).ok, 'it is ready');
    await running.stop();
  });

  it('ends with status 2 and one line if its port is taken or a value is wrong', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    const taken = run([`--redis-url=${redis.server.url}`, `--dashboard-address=127.0.0.1:${port}`]);
    assert.equal(await taken.exited, 2);
    assert.match(
      taken.log(),
      new RegExp(
        `^sutler dashboard: --dashboard-address 127\\.0\\.0\\.1:${port}: the port is in use`,
        'm',
      ),
    );
    other.close();
    const colon = run([`--redis-url=${redis.server.url}`, '--dashboard-user=a:b']);
    assert.equal(await colon.exited, 2);
    assert.match(colon.log(), /^sutler dashboard: --dashboard-user: /m);
  });

  for (const [what, password] of [
    ['a short password', 'elevenchars'],
    ['a password of one character', 'a'.repeat(40)],
  ] as const)
    it(`refuses ${what} without writing it`, async () => {
      const weak = run([`--redis-url=${redis.server.url}`, '--dashboard-address=127.0.0.1:0'], {
        SUTLER_DASHBOARD_PASSWORD: password,
      });
      assert.equal(await weak.exited, 2);
      assert.match(weak.log(), /^sutler dashboard: --dashboard-password .*at least 12 characters/m);
      assert.ok(!weak.log().includes(password));
    });
});
