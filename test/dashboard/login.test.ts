import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { MAX_FAILURES } from '#src/dashboard/failure-limit.ts';
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
  const start = async (): Promise<RunningDashboard> =>
    (dashboard = await startTestDashboard(redis.server.url, { clock }));

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
    const proxied = await send('/login', {
      ...form({ user: USER, password: PASSWORD }),
      headers: { ...form({}).headers, 'x-forwarded-proto': 'https' },
    });
    assert.match(String(proxied.headers['set-cookie']), /; Secure/);
  });

  it('redirects only to its own pages after a login', async () => {
    const { send } = await start();
    for (const next of [
      'https://evil.example/',
      '//evil.example/',
      '/queues/../login',
      '/queues/\\evil',
      '/queues//evil.example\n',
    ]) {
      const sent = await send('/login', form({ user: USER, password: PASSWORD, next }));
      const location = new URL(String(sent.headers.location), 'http://dashboard.example');
      assert.equal(location.host, 'dashboard.example', next);
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

  it('limits an address after five wrong passwords, even with the right one', async () => {
    const { send, logIn } = await start();
    const cookie = await logIn();
    for (let i = 0; i < MAX_FAILURES; i += 1) {
      assert.equal(
        (await send('/login', form({ user: USER, password: `guess ${i}` }))).status,
        401,
      );
    }
    const limited = await send('/login', form({ user: USER, password: PASSWORD }));
    assert.equal(limited.status, 429);
    assert.equal(limited.headers['retry-after'], '60');
    assert.equal((await send('/queues/api/queues', { basic: RIGHT })).status, 429);
    assert.equal(
      (await send('/queues/api/queues', { headers: { cookie } })).status,
      200,
      'a session is not limited',
    );
    nowMs += 60_000;
    assert.equal((await send('/login', form({ user: USER, password: PASSWORD }))).status, 303);
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
