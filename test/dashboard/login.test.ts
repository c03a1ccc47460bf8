import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { MAX_FAILURES } from '#src/dashboard/login.ts';
import type { DashboardOptions } from '#src/dashboard/server.ts';
import { UsageError } from '#src/runtime/flags.ts';
import {
  type BoardRedis,
  cookieOf,
  PASSWORD,
  RIGHT,
  type RunningDashboard,
  startBoardRedis,
  startTestDashboard,
  USER,
} from '../harness/dashboard-server.ts';
import { until } from '../harness/until.ts';

describe('login', () => {
  let redis: BoardRedis;
  let dashboard: RunningDashboard;
  const start = async (o: Partial<DashboardOptions> = {}): Promise<RunningDashboard> =>
    (dashboard = await startTestDashboard(redis.server.url, o));

  before(async () => {
    redis = await startBoardRedis();
  });
  afterEach(() => dashboard.close());
  after(() => redis.close());

  it('has a browser ask for user and password, and shows no page without them', async () => {
    const { send } = await start();
    for (const path of ['/', '/queues/', '/queues/static/favicon.ico', '/renewal.js', '/nowhere']) {
      const reply = await send(path, { headers: { 'sec-fetch-mode': 'navigate' } });
      assert.equal(reply.status, 401, path);
      assert.equal(reply.headers['www-authenticate'], 'Basic realm="sutler", charset="UTF-8"');
      assert.equal((await send(path)).headers['www-authenticate'] === undefined, false, 'a script');
    }
    assert.equal((await send('/queues/', { basic: RIGHT })).status, 200);
    // A script opens no login dialog.
    const reply = await send('/queues/api/queues', { headers: { 'sec-fetch-mode': 'cors' } });
    assert.equal(reply.status, 401);
    assert.equal(reply.headers['www-authenticate'], undefined);
  });

  it('refuses a wrong user and a wrong password with the same answer', async () => {
    const { send } = await start();
    const replies = await Promise.all([
      send('/', { basic: [USER, 'wrong'] }),
      send('/', { basic: ['root', PASSWORD] }),
      send('/', { basic: ['', ''] }),
      send('/', { basic: [`${USER}:${PASSWORD}`, ''] }),
    ]);
    for (const reply of replies) {
      assert.equal(reply.status, 401);
      assert.match(reply.text, /wrong user or password/);
      assert.equal(reply.headers['set-cookie'], undefined);
    }
  });

  /** Sends a password from an address that a proxy reports. */
  const tryPassword = async (
    password: string,
    { from, cookie }: { readonly from?: string; readonly cookie?: string } = {},
  ): Promise<number> => {
    const headers = {
      ...(from === undefined ? {} : { 'x-forwarded-for': from }),
      ...(cookie === undefined ? {} : { cookie }),
    };
    return (await dashboard.send('/queues/api/queues', { basic: [USER, password], headers }))
      .status;
  };
  /** Sends wrong passwords in turn, each from the next address. */
  const guess = async (count: number, addressOf?: (n: number) => string) => {
    const statuses: number[] = [];
    for (let n = 0; n < count; n += 1) {
      const from = addressOf?.(n);
      statuses.push(await tryPassword(`guess ${n}`, from === undefined ? {} : { from }));
    }
    return statuses;
  };
  const TOO_MANY = [...Array.from({ length: MAX_FAILURES }, () => 401), 429];
  const trustedProxies = ['127.0.0.1'];

  it('limits an address after five wrong passwords, even with the right one', async () => {
    const { send } = await start({ failureWindowMs: 2_500 });
    assert.deepEqual(await guess(MAX_FAILURES + 1), TOO_MANY);
    const limited = await send('/', { basic: RIGHT });
    assert.equal(limited.status, 429);
    assert.match(String(limited.headers['retry-after']), /^[123]$/);
    assert.match(limited.text, /try again in [123] s/);
    await until(async () => (await tryPassword(PASSWORD)) === 200, 'it is let in later');
  });

  it('serves a browser that was let in while its address is limited', async () => {
    const { send } = await start();
    const cookie = cookieOf(await send('/', { basic: RIGHT }));
    assert.equal((await guess(MAX_FAILURES + 1)).at(-1), 429);
    assert.equal(await tryPassword(PASSWORD, { cookie }), 200);
    assert.equal(await tryPassword(PASSWORD), 429, 'another browser');
    assert.equal(await tryPassword('guess', { cookie }), 429, 'another password');
    const forged = `${cookie.slice(0, -8)}AAAAAAAA`;
    assert.equal(await tryPassword(PASSWORD, { cookie: forged }), 429, 'a forged cookie');
  });

  it('does not accept the cookie alone, or a cookie from before a restart', async () => {
    const { send } = await start();
    const cookie = cookieOf(await send('/', { basic: RIGHT }));
    assert.equal((await send('/', { headers: { cookie } })).status, 401);
    await dashboard.close();
    await start();
    await guess(MAX_FAILURES);
    assert.equal(await tryPassword(PASSWORD, { cookie }), 429);
  });

  it('hides the cookie from scripts and other sites, and from plain HTTP behind TLS', async () => {
    const headers = { 'x-forwarded-proto': 'https' };
    const direct = await (await start()).send('/', { basic: RIGHT, headers });
    assert.match(
      String(direct.headers['set-cookie']),
      /^sutler_known=[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict$/,
    );
    await dashboard.close();
    const proxied = await (await start({ trustedProxies })).send('/', { basic: RIGHT, headers });
    assert.match(String(proxied.headers['set-cookie']), /; Secure/);
  });

  it('limits no other network', async () => {
    await start({ trustedProxies });
    await guess(MAX_FAILURES + 1, () => '10.0.0.1');
    assert.equal(await tryPassword(PASSWORD, { from: '10.0.0.1' }), 429);
    assert.equal(await tryPassword(PASSWORD, { from: '10.0.0.2' }), 200);
    assert.equal(await tryPassword(PASSWORD), 200, 'over loopback');
  });

  it('trusts in X-Forwarded-For only addresses that a trusted proxy added', async () => {
    await start();
    const spread = (n: number): string => `10.0.0.${n}`;
    assert.deepEqual(await guess(MAX_FAILURES + 1, spread), TOO_MANY, 'no trusted proxy');
    await dashboard.close();
    await start({ trustedProxies });
    const added = await guess(MAX_FAILURES + 1, (n) => `192.0.2.${n}, 198.51.100.1`);
    assert.deepEqual(added, TOO_MANY, 'an address before that of the proxy');
    assert.deepEqual(await guess(MAX_FAILURES + 1, (n) => `unknown-${n}`), TOO_MANY, 'no address');
  });

  for (const item of ['proxy', '10.0.0.0/33', '0.0.0.0/0', '::/0'])
    it(`refuses the proxy ${item}`, () =>
      assert.rejects(
        start({ trustedProxies: [item] }),
        (error) =>
          error instanceof UsageError && error.message.startsWith('--dashboard-trusted-proxies: '),
      ));

  it('allows only its own scripts and no frames by its headers', async () => {
    const { send } = await start();
    for (const path of ['/', '/queues/', '/queues/api/queues', '/nowhere']) {
      const { headers } = await send(path, { basic: RIGHT });
      const policy = String(headers['content-security-policy']);
      assert.match(policy, /default-src 'none'; ?script-src 'self';/);
      assert.match(policy, /frame-ancestors 'none'/);
      assert.equal(headers['x-content-type-options'], 'nosniff');
      assert.equal(headers['cache-control'], 'no-store');
      assert.equal(headers['x-powered-by'], undefined);
    }
  });
});
