import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { OWN_FAILURES, SHARED_FAILURES } from '#src/dashboard/password-check.ts';
import type { DashboardOptions } from '#src/dashboard/server.ts';
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
import { until } from '../harness/until.ts';

const HTML = { accept: 'text/html,application/xhtml+xml' };

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
    assert.match(cookie, /^sutler_session=s%3A[\w-]{32}\.[^;]+; Path=\/; Expires=[^;]+; /);
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
      assert.equal(location.pathname, '/', next);
      assert.match(cookieOf(sent), /^sutler_session=s%3A[\w-]{32}\./, next);
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

  const forwarded = (address?: string): Record<string, string> =>
    address === undefined ? {} : { 'x-forwarded-for': address };
  /** Sends a password by the form, from an address that a proxy reports. */
  const tryPassword = async (password: string, address?: string): Promise<number> => {
    const sent = form({ user: USER, password });
    const headers = { ...sent.headers, ...forwarded(address) };
    return (await dashboard.send('/login', { ...sent, headers })).status;
  };
  /** Sends wrong passwords in turn, each from the next address. */
  const guess = async (count: number, addressOf?: (n: number) => string) => {
    const statuses: number[] = [];
    for (let n = 0; n < count; n += 1)
      statuses.push(await tryPassword(`guess ${n}`, addressOf?.(n)));
    return statuses;
  };
  const TOO_MANY = [...Array.from({ length: OWN_FAILURES }, () => 401), 429];
  const trustedProxies = ['127.0.0.1'];

  it('limits an address after five wrong passwords, even with the right one', async () => {
    const { send } = await start({ failureWindowMs: 2_500 });
    assert.deepEqual(await guess(OWN_FAILURES + 1), TOO_MANY);
    const limited = await send('/login', form({ user: USER, password: PASSWORD }));
    assert.equal(limited.status, 429);
    assert.match(String(limited.headers['retry-after']), /^[123]$/);
    assert.match(limited.text, /try again in [123] s/);
    assert.equal((await send('/queues/api/queues', { basic: RIGHT })).status, 429);
    await until(async () => (await tryPassword(PASSWORD)) === 303, 'it is let in later');
  });

  it('counts wrong passwords by HTTP basic with those of the form', async () => {
    const { send } = await start();
    for (let i = 0; i < OWN_FAILURES; i += 1)
      assert.equal((await send('/queues/', { basic: [USER, `guess ${i}`] })).status, 401);
    assert.deepEqual(await guess(1), [429]);
  });

  it('counts no right passwords, however many come at once', async () => {
    const { send } = await start();
    const replies = await Promise.all(
      Array.from({ length: 50 }, () => send('/queues/static/x', { basic: RIGHT })),
    );
    assert.ok(replies.every(({ status }) => status === 404));
  });

  it('serves an open session while its address is limited', async () => {
    const { send, logIn } = await start();
    const cookie = await logIn();
    assert.equal((await guess(OWN_FAILURES + 1)).at(-1), 429);
    assert.equal((await send('/queues/api/queues', { headers: { cookie } })).status, 200);
  });

  const spread = (n: number): string => `10.0.0.${n}`;

  it('limits the wrong passwords of all networks together', async () => {
    await start({ trustedProxies });
    const statuses = await guess(SHARED_FAILURES + 1, spread);
    assert.deepEqual(statuses.slice(-2), [401, 429]);
  });

  it('limits those that have failed apart from all others', async () => {
    await start({ trustedProxies });
    const repeated = await guess(SHARED_FAILURES + 20, (n) => spread(n % 12));
    assert.equal(repeated.at(-1), 429);
    assert.equal(await tryPassword(PASSWORD, '192.0.2.1'), 303);
  });

  it('lets a user in from where that user has logged in, and over loopback, whoever guesses', async () => {
    await start({ trustedProxies });
    assert.equal(await tryPassword(PASSWORD, '192.0.2.1'), 303);
    await guess(SHARED_FAILURES + 1, spread);
    assert.equal(await tryPassword(PASSWORD, '192.0.2.2'), 429, 'from elsewhere');
    assert.equal(await tryPassword(PASSWORD, '192.0.2.1'), 303);
    assert.equal(await tryPassword(PASSWORD), 303);
  });

  it('counts the /64 of an IPv6 address, and all of loopback, as one network', async () => {
    await start({ trustedProxies });
    const statuses = await guess(OWN_FAILURES + 1, (n) => `2001:db8:1:2:${n}::1`);
    assert.deepEqual(statuses, TOO_MANY);
    assert.equal(await tryPassword(PASSWORD, '2001:db8:1:3::1'), 303);
    const loopback = ['127.0.0.2', '::1', '::ffff:127.0.0.3', '127.9.9.9', '127.0.0.4', '::1'];
    assert.deepEqual(await guess(OWN_FAILURES + 1, (n) => loopback[n] ?? ''), TOO_MANY);
  });

  it('believes of X-Forwarded-For only what a trusted proxy added, and only addresses', async () => {
    await start();
    assert.deepEqual(await guess(OWN_FAILURES + 1, spread), TOO_MANY, 'no trusted proxy');
    await dashboard.close();
    await start({ trustedProxies });
    const added = await guess(OWN_FAILURES + 1, (n) => `192.0.2.${n}, 198.51.100.1`);
    assert.deepEqual(added, TOO_MANY, 'an address before that of the proxy');
    assert.deepEqual(await guess(OWN_FAILURES + 1, (n) => `unknown-${n}`), TOO_MANY, 'no address');
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
    const page = await send('/', { headers: { cookie } });
    assert.match(page.text, /<form method="post" action="\/logout">/);
    const out = await send('/logout', { method: 'POST', headers: { cookie } });
    assert.equal(out.headers.location, '/login');
    assert.equal((await send('/queues/api/queues', { headers: { cookie } })).status, 401);
  });

  it('ends a session after its time', async () => {
    const { send, logIn } = await start({ sessionMs: 1_000 });
    const cookie = await logIn();
    const status = async () => (await send('/queues/api/queues', { headers: { cookie } })).status;
    assert.equal(await status(), 200);
    await until(async () => (await status()) === 401, 'the session has ended');
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
    for (const path of ['/login', '/', '/queues/', '/queues/api/queues', '/nowhere']) {
      const { headers } = await send(path, { headers: { cookie } });
      const policy = String(headers['content-security-policy']);
      assert.match(policy, /default-src 'none'; ?script-src 'self';/);
      assert.match(policy, /frame-ancestors 'none'/);
      assert.equal(headers['x-content-type-options'], 'nosniff');
      assert.equal(headers['cache-control'], 'no-store');
      assert.equal(headers['x-powered-by'], undefined);
    }
  });
});
