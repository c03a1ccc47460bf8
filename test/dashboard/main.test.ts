import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { request } from 'undici';
import { main } from '#src/dashboard/main.ts';
import { PREFIX, startBoardRedis, type BoardRedis } from '../harness/dashboard-server.ts';
import { type Running, runMain } from '../harness/run-main.ts';
import { runSutler } from '../harness/run-sutler.ts';

describe('dashboard', () => {
  let redis: BoardRedis;
  before(async () => {
    redis = await startBoardRedis();
  });
  after(() => redis.close());

  const run = (argv: readonly string[], env = {}): Promise<Running> =>
    runMain(
      main,
      [`--redis-url=${redis.server.url}`, '--dashboard-address=127.0.0.1:0', ...argv],
      env,
    );

  it('generates a password, logs it once and accepts it', async () => {
    const process = await run([`--redis-prefix=${PREFIX}`]);
    const { dashboard = '', user, password = '' } = process.facts;
    assert.match(password, /^[\w-]{20}$/);
    assert.equal(process.output.join('').split(password).length - 1, 1);
    const authorization = `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
    const reply = await request(dashboard, { headers: { authorization } });
    await reply.body.dump();
    assert.ok([200, 503].includes(reply.statusCode));
    await process.stop();
  });

  it('takes a password from its variable and never logs it', async () => {
    const process = await run(['--v=6'], { SUTLER_DASHBOARD_PASSWORD: 'from-the-environment' });
    assert.equal(process.facts['password'], undefined);
    assert.doesNotMatch(process.output.join(''), /from-the-environment/);
    await process.stop();
  });

  it('starts without Redis and reports it in /readyz', async () => {
    const process = await run(['--redis-url=redis://127.0.0.1:1', '--http-endpoint=127.0.0.1:0']);
    const ready = await request(`${process.url}/readyz`);
    assert.equal(ready.statusCode, 503);
    assert.match(await ready.body.text(), /\[-\]redis: Redis at 127\.0\.0\.1:1/);
    const metrics = await request(`${process.url}/metrics`);
    assert.match(await metrics.body.text(), /^sutler_dashboard_logins_total\{result="ok"\} 0$/m);
    await process.stop();
  });

  const refused = async (argv: readonly string[], password?: string): Promise<string> => {
    const env = password === undefined ? {} : { SUTLER_DASHBOARD_PASSWORD: password };
    const common = [`--redis-url=${redis.server.url}`, '--dashboard-address=127.0.0.1:0'];
    const { code, err } = await runSutler(['dashboard', ...common, ...argv], env);
    assert.equal(code, 2);
    return err;
  };

  it('ends with status 2 and one line if its port is taken or a value is wrong', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    const taken = await refused([`--dashboard-address=127.0.0.1:${port}`]);
    assert.match(
      taken,
      /^sutler dashboard: --dashboard-address 127\.0\.0\.1:\d+: the port is in use/m,
    );
    other.close();
    assert.match(await refused(['--dashboard-user=a:b']), /^sutler dashboard: --dashboard-user: /m);
  });

  for (const [what, password] of [
    ['a short password', 'elevenchars'],
    ['a password of one character', 'a'.repeat(40)],
  ] as const)
    it(`refuses ${what} without writing it`, async () => {
      const err = await refused([], password);
      assert.match(err, /^sutler dashboard: --dashboard-password .*at least 12 characters/m);
      assert.ok(!err.includes(password));
    });
});
