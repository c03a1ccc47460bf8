import { createHash, timingSafeEqual } from 'node:crypto';
import express from 'express';
import type { Request, RequestHandler, Response } from 'express';
import { Counter, type Registry } from 'prom-client';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { FailureLimit } from './failure-limit.ts';
import { loginPage, logoutPage, refusedPage } from './pages.ts';
import { originOf } from './same-origin.ts';
import { SESSION_MS, Sessions } from './sessions.ts';

/** Name of the cookie that holds a browser's session. */
export const COOKIE = 'sutler_session';

export interface LoginOptions {
  readonly user: string;
  readonly password: string;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly clock: Clock;
}

export interface Login {
  /** /login and /logout. */
  readonly pages: RequestHandler;
  /** Lets through who is logged in (browsers: cookie; scripts: HTTP basic) and whose changing
   * requests come from our own pages. */
  readonly required: RequestHandler;
}

type Verdict = 'ok' | 'wrong' | 'limited';

/** One user, one password. */
export function createLogin(options: LoginOptions): Login {
  const { clock, log } = options;
  const sessions = new Sessions(clock);
  const limit = new FailureLimit(clock);
  const attempts = new Counter({
    name: 'sutler_dashboard_logins_total',
    help: 'Passwords sent to the dashboard, HTTP basic included, by result: ok, wrong, limited.',
    labelNames: ['result'],
    registers: [options.metrics],
  });
  const isRight = credentialCheck(options.user, options.password);

  const judge = (request: Request, user: string, password: string): Verdict => {
    const address = request.socket.remoteAddress ?? '';
    const verdict =
      limit.waitMs(address) > 0 ? 'limited' : isRight(user, password) ? 'ok' : 'wrong';
    if (verdict === 'ok') limit.succeeded(address);
    if (verdict === 'wrong') {
      limit.failed(address);
      log.warn({ address, path: request.path }, 'dashboard: wrong user or password');
    }
    attempts.inc({ result: verdict });
    return verdict;
  };
  const retryAfter = (request: Request, response: Response): void => {
    const seconds = Math.ceil(limit.waitMs(request.socket.remoteAddress ?? '') / 1000);
    response.status(429).set('retry-after', String(Math.max(1, seconds)));
  };

  const pages = express.Router();
  pages.get('/login', (request, response) => {
    response.send(loginPage(safeNext(request.query['next']), ''));
  });
  pages.post(
    '/login',
    express.urlencoded({ extended: false, limit: '4kb' }),
    (request, response) => {
      if (originOf(request) === 'other') {
        response.status(403).send(refusedPage('A login from another site’s page is not accepted.'));
        return;
      }
      const form = fieldsOf(request.body);
      const next = safeNext(form['next']);
      const verdict = judge(request, form['user'] ?? '', form['password'] ?? '');
      if (verdict === 'ok') {
        setCookie(request, response, sessions.open(), SESSION_MS);
        response.redirect(303, next);
      } else if (verdict === 'limited') {
        retryAfter(request, response);
        response.send(
          loginPage(next, 'Too many wrong passwords from this address: wait a minute.'),
        );
      } else {
        response.status(401).send(loginPage(next, 'Wrong user or password.'));
      }
    },
  );
  pages.get('/logout', (_request, response) => {
    response.send(logoutPage());
  });
  pages.post('/logout', (request, response) => {
    // Harmless from another site too: SameSite keeps the cookie away from it.
    sessions.end(sessionOf(request));
    setCookie(request, response, '', 0);
    response.redirect(303, '/login');
  });

  const required: RequestHandler = (request, response, next) => {
    const basic = basicOf(request);
    if (basic !== undefined) {
      const verdict = judge(request, basic.user, basic.password);
      if (verdict === 'limited') {
        retryAfter(request, response);
        response.json({ error: 'too many wrong passwords from this address: wait a minute' });
        return;
      }
      if (verdict === 'wrong') return askForLogin(request, response);
    } else if (!sessions.isOpen(sessionOf(request))) return askForLogin(request, response);
    if (isReading(request.method)) return next();
    const origin = originOf(request);
    // A script with a password can't be ridden by another site; a cookie without the browser's word
    // on where the request comes from could.
    if (origin === 'same' || (origin === 'unknown' && basic !== undefined)) return next();
    log.warn(
      { method: request.method, path: request.path, origin: request.headers.origin },
      'dashboard: refused a request from elsewhere',
    );
    response.status(403).json({
      error: 'requests that change something are taken from the dashboard’s own pages only',
    });
  };
  return { pages, required };
}

/** Whether a request only reads. */
export function isReading(method: string): boolean {
  return method === 'GET' || method === 'HEAD';
}

function askForLogin(request: Request, response: Response): void {
  if (isReading(request.method) && request.accepts(['json', 'html']) === 'html') {
    response.redirect(303, `/login?next=${encodeURIComponent(request.originalUrl)}`);
    return;
  }
  // Browsers would answer a challenge with a dialog of their own on top of the page.
  if (request.headers['sec-fetch-mode'] === undefined)
    response.set('www-authenticate', 'Basic realm="sutler", charset="UTF-8"');
  response
    .status(401)
    .json({ error: 'not logged in: reload the page, or send user and password by HTTP basic' });
}

/** Compares in a time that does not depend on where the texts differ. */
function credentialCheck(
  user: string,
  password: string,
): (user: string, password: string) => boolean {
  const [wantedUser, wantedPassword] = [sha256(user), sha256(password)];
  return (givenUser, givenPassword) => {
    const isUser = timingSafeEqual(sha256(givenUser), wantedUser);
    const isPassword = timingSafeEqual(sha256(givenPassword), wantedPassword);
    return isUser && isPassword;
  };
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

/** Only our own pages: a login must not be a way to somebody else's. */
function safeNext(next: unknown): string {
  return typeof next === 'string' && /^\/queues\/[\w./~%?=&:@+,-]*$/.test(next) ? next : '/queues/';
}

function fieldsOf(body: unknown): Readonly<Record<string, string>> {
  if (typeof body !== 'object' || body === null) return {};
  return Object.fromEntries(
    Object.entries(body).filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
  );
}

function sessionOf(request: Request): string {
  const pairs = (request.headers.cookie ?? '').split(';').map((pair) => pair.trim());
  return pairs.find((pair) => pair.startsWith(`${COOKIE}=`))?.slice(COOKIE.length + 1) ?? '';
}

function setCookie(request: Request, response: Response, value: string, maxAgeMs: number): void {
  // A proxy with TLS says so; claiming it falsely only makes the cookie more careful.
  const secure = request.headers['x-forwarded-proto'] === 'https';
  response.cookie(COOKIE, value, {
    httpOnly: true,
    sameSite: 'strict',
    path: '/',
    maxAge: maxAgeMs,
    secure,
  });
}

function basicOf(
  request: Request,
): { readonly user: string; readonly password: string } | undefined {
  const encoded = /^Basic ([A-Za-z0-9+/=_-]+)$/i.exec(request.headers.authorization ?? '')?.[1];
  if (encoded === undefined) return undefined;
  const text = Buffer.from(encoded, 'base64').toString();
  const colon = text.indexOf(':');
  return colon === -1
    ? { user: text, password: '' }
    : { user: text.slice(0, colon), password: text.slice(colon + 1) };
}
