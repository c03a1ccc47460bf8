import express, { type Request, type RequestHandler, type Response } from 'express';
import type { Logger } from '../runtime/log.ts';
import { loginPage, logoutPage, refusedPage } from './pages.ts';
import { PasswordCheck, type PasswordCheckOptions, type Verdict } from './password-check.ts';
import { originOf } from './same-origin.ts';
import { SESSION_MS, Sessions } from './sessions.ts';

/** The cookie with a browser's session token. */
const COOKIE = 'sutler_session';

export interface Login {
  /** Serves /login and /logout. */
  readonly pages: RequestHandler;
  /** Passes on the requests of logged-in users: browsers by cookie, scripts by HTTP basic. Requests
   * that change something must come from the dashboard's own pages. */
  readonly required: RequestHandler;
}

/** Login of a single user with a password. */
export function createLogin(options: PasswordCheckOptions): Login {
  const sessions = new Sessions(options.clock);
  const passwords = new PasswordCheck(options);
  return {
    pages: createPages(sessions, passwords),
    required: requireLogin(sessions, passwords, options.log),
  };
}

const REFUSED = 'Requests from another site’s page are not accepted.';

function createPages(sessions: Sessions, passwords: PasswordCheck): RequestHandler {
  const pages = express.Router();
  const parseForm = express.urlencoded({ extended: false, limit: '4kb', inflate: false });
  pages.get('/login', (request, response) => {
    response.send(loginPage(safeNext(request.query['next']), ''));
  });
  pages.post('/login', parseForm, (request, response) => {
    if (originOf(request) === 'other') return response.status(403).send(refusedPage(REFUSED));
    const { next: nextField, user = '', password = '' } = fieldsOf(request.body);
    const next = safeNext(nextField);
    const verdict = passwords.check(request, user, password);
    switch (verdict.result) {
      case 'ok':
        sessions.end(sessionOf(request));
        setCookie(request, response, sessions.open(), SESSION_MS);
        return response.redirect(303, next);
      case 'limited':
        return limit(response, verdict).send(loginPage(next, limitedText(verdict)));
      case 'wrong':
        response.status(401).send(loginPage(next, 'Wrong user or password.'));
    }
  });
  pages.get('/logout', (_request, response) => {
    response.send(logoutPage());
  });
  pages.post('/logout', (request, response) => {
    if (originOf(request) === 'other') return response.status(403).send(refusedPage(REFUSED));
    sessions.end(sessionOf(request));
    setCookie(request, response, '', 0);
    return response.redirect(303, '/login');
  });
  return pages;
}

function limitedText({ waitSeconds }: Verdict): string {
  return `Too many wrong passwords were sent: try again in ${waitSeconds} s.`;
}

/** Sets status and headers of the answer to somebody who is limited. */
function limit(response: Response, { waitSeconds }: Verdict): Response {
  return response.status(429).set('retry-after', String(waitSeconds));
}

function requireLogin(sessions: Sessions, passwords: PasswordCheck, log: Logger): RequestHandler {
  return (request, response, next) => {
    const basic = basicOf(request);
    const verdict = basic && passwords.check(request, basic.user, basic.password);
    if (verdict?.result === 'limited')
      return limit(response, verdict).json({ error: limitedText(verdict) });
    const isLoggedIn =
      verdict === undefined ? sessions.isOpen(sessionOf(request)) : verdict.result === 'ok';
    if (!isLoggedIn) return askForLogin(request, response);
    if (isReading(request.method)) return next();
    const from = originOf(request);
    // A page of another site may make the browser send its cookie: only the origin tells such a
    // request apart. It can't make the browser send a password by HTTP basic.
    if (from === 'same' || (from === 'unknown' && basic !== undefined)) return next();
    const { method, path, headers } = request;
    // The origin is any text that a client chose.
    const origin = headers.origin?.replaceAll(/[^\x21-\x7e]/g, '?').slice(0, 100);
    const fields = { method, path, origin };
    log.warn(fields, 'dashboard: refused a request that is not from its own pages');
    const error = 'requests that change something must come from the dashboard’s own pages';
    response.status(403).json({ error });
  };
}

/** Whether requests with this method change nothing. */
export function isReading(method: string): boolean {
  return method === 'GET' || method === 'HEAD';
}

function askForLogin(request: Request, response: Response): void {
  if (isReading(request.method) && request.accepts(['json', 'html']) === 'html')
    return response.redirect(303, `/login?next=${encodeURIComponent(request.originalUrl)}`);
  // Only to scripts: a browser would open a password dialog of its own on top of the page.
  if (request.headers['sec-fetch-mode'] === undefined)
    response.set('www-authenticate', 'Basic realm="sutler", charset="UTF-8"');
  const error = 'not logged in: reload the page, or send user and password by HTTP basic';
  response.status(401).json({ error });
}

/** The page to open after the login: only one of the dashboard, so that a link to the login can't
 * lead to another site. */
function safeNext(next: unknown): string {
  return typeof next === 'string' && /^\/queues\/(?!.*\.\.)[\w./~%?=&:@+,-]*$/.test(next)
    ? next
    : '/queues/';
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
  response.cookie(COOKIE, value, {
    httpOnly: true,
    sameSite: 'strict',
    path: '/',
    maxAge: maxAgeMs,
    // As a trusted proxy says.
    secure: request.secure,
  });
}

function basicOf(
  request: Request,
): { readonly user: string; readonly password: string } | undefined {
  const encoded = /^Basic ([A-Za-z0-9+/=_-]+)$/i.exec(request.headers.authorization ?? '')?.[1];
  if (encoded === undefined) return undefined;
  const [user = '', ...password] = Buffer.from(encoded, 'base64').toString().split(':');
  return { user, password: password.join(':') };
}
