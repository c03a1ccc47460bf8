import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { FREE_FAILURES } from '#src/dashboard/failure-limit.ts';
import type { DashboardOptions } from '#src/dashboard/server.ts';
import { SESSION_MS } from '#src/dashboard/sessions.ts';
import type { Clock } from '#src/runtime/clock.ts';
import {
  cookieOf,
  form,
  PASSWORD,
  RIGHT,
  startBoardRedis,
  startTestDashboard,
  USER,
  type BoardRedis,
  type RunningDashboard,
} from '../harness/dashboard-server.ts';

const HTML = { accept: 'text/html,application/xhtml+xml' };

describe('login', () => {
  let redis: BoardRedis;
  let dashboard: RunningDashboard;
  let nowMs = Date.now();
  const clock: Clock = { nowMs: () => nowMs, sleep: () => Promise.resolve() };
  const start = async (o: Partial<DashboardOptions> = {}): Promise<RunningDashboard> =>
    (dashboard = await startTestDashboard(redis.server.url, { clock, ...o }));

  before(async () => {
    redis = await startBoardRedis();
  });
  afterEach(() => dashboard.close());
  after(() => redis.close());

  it('redirects a browser to the login page and back to the page it asked for', async () => {
    const { send } = await start();
    const refused = await send('/queues/queue/claims.d.example?status=delayed', { headers: HTML });
    assert.equal(refused.status, 303);
    const location = String(refused.headers.location);
    assert.equal(location, '/login?next=%2Fqueues%2Fqueue%2Fclaims.d.example%3Fstatus%3Ddelayed');
    const page = await send(location);
    assert.match(
      page.text,
      /<input type="hidden" name="next" value="\/queues\/queue\/claims\.d\.example\?status=delayed">/,
    );
    const sent = await send(
      '/login',
      form({
        user: USER,
        password: PASSWORD,
        next: '/queues/queue/claims.d.example?status=delayed',
      }),
    );
    assert.equal(sent.status, 303);
    assert.equal(sent.headers.location, '/queues/queue/claims.d.example?status=delayed');
    const shown = await send('/queues/', { headers: { cookie: cookieOf(sent) } });
    assert.equal(shown.status, 200);
    assert.match(shown.text, /<div id="root">/);
  });

  it('hides the cookie from scripts and other sites', async () => {
    const { send } = await start();
    const sent = await send('/login', form({ user: USER, password: PASSWORD }));
    const cookie = String(sent.headers['set-cookie']);
    assert.match(cookie, /^sutler_session=[\w-]{43}; Max-Age=43200; Path=\/; Expires=[^;]+; /);
    assert.match(cookie, /Expires=[^;]+; HttpOnly; SameSite=Strict$/);
  });

  it('keeps the cookie out of plain HTTP if a trusted proxy says that the client uses TLS', async () => {
    const login = {
      ...form({ user: USER, password: PASSWORD }),
      headers: { ...form({}).headers, 'x-forwarded-proto': 'https' },
    };
    const proxied = await (await start({ trustedProxies: ['127.0.0.1'] })).send('/login', login);
    assert.match(String(proxied.headers['set-cookie']), /; Secure/);
    await dashboard.close();
    const direct = await (await start()).send('/login', login);
    assert.doesNotMatch(String(direct.headers['set-cookie']), /; Secure/);
  });

  it('redirects only to its own pages after a login', async () => {
    const { send } = await start();
    for (const next of [
      'https://evil.example/',
      '//evil.example/',
      '/queues/../login',
      '/queues/\\evil',
      '/queues//evil.example\n',
      '/%2f/evil.example',
      '/queues/%0d%0aLocation: //evil.example',
      '\\\\evil.example',
      'javascript:alert(1)',
      '/queues/\r\nset-cookie: a=b',
    ]) {
      const sent = await send('/login', form({ user: USER, password: PASSWORD, next }));
      const location = new URL(String(sent.headers.location), 'http://dashboard.example');
      assert.equal(location.host, 'dashboard.example', next);
      assert.match(location.pathname, /^\/queues\//, next);
      assert.match(cookieOf(sent), /^sutler_session=[\w-]{43}$/, next);
    }
    const escaped = await send(`/login?next=${encodeURIComponent('/queues/"><script>')}`);
    assert.doesNotMatch(escaped.text, /<script>/);
  });

  it('refuses a wrong user and a wrong password with the same answer', async () => {
    const { send } = await start();
    const replies = await Promise.all([
      send('/login', form({ user: USER, password: 'wrong' })),
      send('/login', form({ user: 'root', password: PASSWORD })),
      send('/login', form({})),
    ]);
    for (const reply of replies) {
      assert.equal(reply.status, 401);
      assert.match(reply.text, /Wrong user or password/);
      assert.equal(reply.headers['set-cookie'], undefined);
    }
  });

  it('answers 401 to API requests, with a challenge only outside a browser', async () => {
    const { send } = await start();
    const script = await send('/queues/api/queues');
    assert.equal(script.status, 401);
    assert.match(String(script.headers['www-authenticate']), /^Basic /);
    const browser = await send('/queues/api/queues', { headers: { 'sec-fetch-mode': 'cors' } });
    assert.equal(browser.status, 401);
    assert.equal(browser.headers['www-authenticate'], undefined);
    const asset = await send('/queues/static/favicon.ico', { headers: { accept: 'image/*' } });
    assert.equal(asset.status, 401);
  });

  it('accepts HTTP basic', async () => {
    const { send } = await start();
    assert.equal((await send('/queues/api/queues', { basic: RIGHT })).status, 200);
    assert.equal((await send('/queues/api/queues', { basic: [USER, 'wrong'] })).status, 401);
    assert.equal(
      (await send('/queues/api/queues', { headers: { authorization: 'Bearer x' } })).status,
      401,
    );
  });

  /** Sends wrong passwords by the form, in turn, from an address that a proxy reports. */
  const guess = async (count: number, address?: string): Promise<readonly number[]> => {
    const statuses: number[] = [];
    for (let i = 0; i < count; i += 1) {
      const sent = form({ user: USER, password: `guess ${i}` });
      const headers = { ...sent.headers, ...forwarded(address) };
      statuses.push((await dashboard.send('/login', { ...sent, headers })).status);
    }
    return statuses;
  };
  const forwarded = (address?: string): Record<string, string> =>
    address === undefined ? {} : { 'x-forwarded-for': address };

  it('limits an address after three wrong passwords, even with the right one', async () => {
    const { send } = await start();
    assert.deepEqual(await guess(FREE_FAILURES + 2), [401, 401, 401, 429, 429]);
    const limited = await send('/login', form({ user: USER, password: PASSWORD }));
    assert.equal(limited.status, 429);
    assert.equal(limited.headers['retry-after'], '1');
    assert.match(limited.text, /try again in 1 s/);
    assert.equal((await send('/queues/api/queues', { basic: RIGHT })).status, 429);
    nowMs += 1000;
    assert.equal((await send('/login', form({ user: USER, password: PASSWORD }))).status, 303);
  });

  it('counts wrong passwords by HTTP basic with those of the form', async () => {
    const { send } = await start();
    for (let i = 0; i < FREE_FAILURES; i += 1)
      assert.equal((await send('/queues/', { basic: [USER, `guess ${i}`] })).status, 401);
    assert.deepEqual(await guess(1), [429]);
  });

  it('serves an open session while its address is limited', async () => {
    const { send, logIn } = await start();
    const cookie = await logIn();
    assert.deepEqual((await guess(FREE_FAILURES + 1)).at(-1), 429);
    assert.equal((await send('/queues/api/queues', { headers: { cookie } })).status, 200);
  });

  it('bounds the guesses from an address where a script logs in all the time', async () => {
    const { send } = await start();
    let count = 0;
    for (let i = 0; i < 60; i += 1) {
      await send('/queues/static/x', { basic: RIGHT });
      count += (await guess(2)).filter((status) => status === 401).length;
      nowMs += 1000;
    }
    assert.ok(count <= 20, `${count} guesses in a minute`);
  });

  it('does not believe an address in X-Forwarded-For without a trusted proxy', async () => {
    await start();
    const statuses = [];
    for (let i = 0; i < 5; i += 1) statuses.push(...(await guess(1, `192.0.2.${i}`)));
    assert.deepEqual(statuses, [401, 401, 401, 429, 429]);
  });

  it('limits each client behind a trusted proxy apart', async () => {
    const { send } = await start({ trustedProxies: ['127.0.0.0/8'] });
    assert.deepEqual((await guess(4, '192.0.2.1')).at(-1), 429);
    const login = form({ user: USER, password: PASSWORD });
    const other = await send('/login', {
      ...login,
      headers: { ...login.headers, ...forwarded('192.0.2.2') },
    });
    assert.equal(other.status, 303);
  });

  it('believes of X-Forwarded-For only what the trusted proxy added', async () => {
    await start({ trustedProxies: ['127.0.0.1'] });
    const statuses = [];
    for (let i = 0; i < 5; i += 1) statuses.push(...(await guess(1, `192.0.2.${i}, 198.51.100.1`)));
    assert.deepEqual(statuses, [401, 401, 401, 429, 429]);
  });

  it('counts the proxy’s own address where what it reports is none', async () => {
    await start({ trustedProxies: ['127.0.0.1'] });
    const statuses = [];
    for (let i = 0; i < 5; i += 1) statuses.push(...(await guess(1, `unknown-${i}`)));
    assert.deepEqual(statuses, [401, 401, 401, 429, 429]);
  });

  it('opens a new session at each login, whatever cookie came with it', async () => {
    const { send } = await start();
    const login = form({ user: USER, password: PASSWORD });
    const planted = `sutler_session=${'A'.repeat(43)}`;
    const first = await send('/login', {
      ...login,
      headers: { ...login.headers, cookie: planted },
    });
    const cookie = cookieOf(first);
    assert.notEqual(cookie, planted);
    assert.equal((await send('/queues/api/queues', { headers: { cookie: planted } })).status, 401);
    const again = await send('/login', { ...login, headers: { ...login.headers, cookie } });
    assert.notEqual(cookieOf(again), cookie);
    assert.equal(
      (await send('/queues/api/queues', { headers: { cookie } })).status,
      401,
      'the session before it has ended',
    );
  });

  it('refuses a logout from another site’s page', async () => {
    const { send, logIn } = await start();
    const cookie = await logIn();
    for (const headers of [{ origin: 'http://evil.example' }, { 'sec-fetch-site': 'same-site' }]) {
      const reply = await send('/logout', { method: 'POST', headers: { cookie, ...headers } });
      assert.equal(reply.status, 403);
    }
    assert.equal((await send('/queues/api/queues', { headers: { cookie } })).status, 200);
  });

  it('ends a session on logout', async () => {
    const { send, logIn } = await start();
    const cookie = await logIn();
    assert.match(
      (await send('/logout', { headers: { cookie } })).text,
      /<form method="post" action="\/logout">/,
    );
    assert.equal(
      (await send('/queues/api/queues', { headers: { cookie } })).status,
      200,
      'opening the page does not end the session',
    );
    const out = await send('/logout', { method: 'POST', headers: { cookie } });
    assert.equal(out.headers.location, '/login');
    assert.equal((await send('/queues/api/queues', { headers: { cookie } })).status, 401);
  });

  it('ends a session after twelve hours', async () => {
    const { send, logIn } = await start();
    const cookie = await logIn();
    nowMs += SESSION_MS - 1;
    assert.equal((await send('/queues/api/queues', { headers: { cookie } })).status, 200);
    nowMs += 1;
    assert.equal((await send('/queues/api/queues', { headers: { cookie } })).status, 401);
  });

  it('refuses a login from another site’s page', async () => {
    const { send, origin } = await start();
    const login = form({ user: USER, password: PASSWORD });
    const from = (headers: Record<string, string>) =>
      send('/login', { ...login, headers: { ...login.headers, ...headers } });
    assert.equal((await from({ origin: 'http://evil.example' })).status, 403);
    assert.equal((await from({ 'sec-fetch-site': 'cross-site' })).status, 403);
    assert.equal((await from({ origin: 'null' })).status, 403);
    assert.equal((await from({ origin })).status, 303);
  });

  it('allows only its own scripts and no frames by its headers', async () => {
    const { send, logIn } = await start();
    const cookie = await logIn();
    for (const path of ['/login', '/queues/', '/queues/api/queues', '/nowhere']) {
      const { headers } = await send(path, { headers: { cookie } });
      const policy = String(headers['content-security-policy']);
      assert.match(policy, /default-src 'none'; script-src 'self';/);
      assert.match(policy, /frame-ancestors 'none'/);
      assert.equal(headers['x-content-type-options'], 'nosniff');
      assert.equal(headers['cache-control'], 'no-store');
      assert.equal(headers['x-powered-by'], undefined);
    }
  });
});
