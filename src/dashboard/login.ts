import { randomBytes } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import session from 'express-session';
import QuickLRU from 'quick-lru';
import type { Logger } from '../runtime/log.ts';
import { loginPage } from './pages.ts';
import { type Caller, PasswordCheck, type PasswordCheckOptions } from './password-check.ts';
import { refuse } from './refusals.ts';
import { addressOf, isReading } from './request-checks.ts';
import express, { type Request, type RequestHandler, type Response } from 'express';

declare module 'express-session' {
  interface SessionData {
    caller: Caller;
  }
}

/** Who sends a request that `login` has passed on. */
export function callerOf({ locals }: Response): Caller {
  return locals['caller'] as Caller;
}

const MAY_NOT_ACT =
  'only the user of --dashboard-user may act here, and only with --dashboard-allow-actions';

/** Refuses every request that changes something, but for those of a user who may act.
 * @param refusal  why nobody may act on a page */
export function guardActions(log: Logger, refusal?: string): RequestHandler {
  return (request, response, next) => {
    const { method, originalUrl: path } = request;
    if (isReading(method)) return next();
    const { user, mayAct } = callerOf(response);
    const fields = { user, method, path, address: addressOf(request) };
    if (mayAct && refusal === undefined) {
      log.info(fields, 'dashboard: an operator acts');
      return next();
    }
    log.warn(fields, 'dashboard: refused an action');
    refuse(response, 403, refusal ?? MAY_NOT_ACT);
  };
}

const COOKIE = 'sutler_session';
const SESSION_MS = 12 * 3_600_000;
/** Beyond this number, the oldest session ends. */
const MAX_SESSIONS = 1_000;

export interface LoginOptions extends PasswordCheckOptions {
  /** How long a login lasts; 12 hours if absent. */
  readonly sessionMs?: number;
}

/** Sessions of logged-in browsers. They are in memory, so a restart ends them. */
class Sessions extends session.Store {
  readonly #sessions: QuickLRU<string, string>;

  constructor(sessionMs: number) {
    super();
    this.#sessions = new QuickLRU({ maxSize: MAX_SESSIONS, maxAge: sessionMs });
  }

  override get: session.Store['get'] = (id, callback) => {
    const text = this.#sessions.get(id);
    callback(null, text === undefined ? null : (JSON.parse(text) as session.SessionData));
  };

  override set: session.Store['set'] = (id, data, callback) => {
    this.#sessions.set(id, JSON.stringify(data));
    callback?.();
  };

  override destroy: session.Store['destroy'] = (id, callback) => {
    this.#sessions.delete(id);
    callback?.();
  };
}

const REFUSED = 'Requests from another site’s page are not accepted.';
const WRONG = 'Wrong user or password.';

/** Serves /login and /logout, and passes on the requests of logged-in users: browsers by cookie,
 * scripts by HTTP basic. Requests that change something must come from our own pages. */
export function login(options: LoginOptions): RequestHandler {
  const passwords = new PasswordCheck(options);
  const sessionMs = options.sessionMs ?? SESSION_MS;
  const pages = express.Router();
  pages.use(
    session({
      name: COOKIE,
      secret: randomBytes(32).toString('base64url'),
      store: new Sessions(sessionMs),
      resave: false,
      saveUninitialized: false,
      // Secure as a trusted proxy says.
      cookie: { httpOnly: true, sameSite: 'strict', maxAge: sessionMs, secure: 'auto' },
    }),
  );
  const parseForm = express.urlencoded({ extended: false, limit: '4kb', inflate: false });
  pages.get('/login', (request, response) => {
    response.send(loginPage(safeNext(request.query['next'])));
  });
  pages.post('/login', parseForm, async (request, response) => {
    if (originOf(request) === 'other') return refuse(response, 403, REFUSED);
    const fields = (request.body ?? {}) as Readonly<Record<string, string | string[]>>;
    const next = safeNext(fields['next']);
    const [user, password] = [String(fields['user'] ?? ''), String(fields['password'] ?? '')];
    const { caller, waitSeconds } = await passwords.check(request, user, password);
    if (caller === undefined) {
      const [status, problem] =
        waitSeconds > 0 ? [429, limit(response, waitSeconds)] : [401, WRONG];
      return refuse(response, status, problem, loginPage(next, problem, user));
    }
    await renewSession(request);
    request.session.caller = caller;
    return response.redirect(303, next);
  });
  pages.post('/logout', (request, response) => {
    if (originOf(request) === 'other') return refuse(response, 403, REFUSED);
    request.session.destroy(() => response.clearCookie(COOKIE).redirect(303, '/login'));
  });
  pages.use(requireLogin(passwords, options.log));
  return pages;
}

/** Ends the session, if there is one, and begins another. */
function renewSession({ session: own }: Request): Promise<void> {
  return new Promise((resolve, reject) => {
    own.regenerate((error?: Error) => (error ? reject(error) : resolve()));
  });
}

/** Sets the header of the answer to somebody who is limited.
 * @returns its text */
function limit(response: Response, waitSeconds: number): string {
  response.set('retry-after', String(waitSeconds));
  return `Too many wrong passwords were sent: try again in ${waitSeconds} s.`;
}

function requireLogin(passwords: PasswordCheck, log: Logger): RequestHandler {
  return async (request, response, next) => {
    const basic = basicOf(request);
    const verdict = basic && (await passwords.check(request, basic.user, basic.password));
    const { waitSeconds = 0 } = verdict ?? {};
    if (waitSeconds > 0) return refuse(response, 429, limit(response, waitSeconds));
    const { caller } = verdict ?? request.session;
    if (caller === undefined) return askForLogin(request, response);
    response.locals['caller'] = caller;
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
    const detail = 'requests that change something must come from the dashboard’s own pages';
    refuse(response, 403, detail);
  };
}

/** Whether a page of the dashboard or of another site sent a request, by the browser's headers;
 * `unknown` without them, as from curl. */
function originOf(request: IncomingMessage): 'same' | 'other' | 'unknown' {
  const { 'sec-fetch-site': site, origin, host } = request.headers;
  // A page's scripts can't set this header, and it is right also behind a proxy that rewrites Host.
  if (typeof site === 'string') return site === 'same-origin' ? 'same' : 'other';
  if (origin === undefined) return 'unknown';
  return URL.canParse(origin) && new URL(origin).host === host ? 'same' : 'other';
}

function askForLogin(request: Request, response: Response): void {
  if (isReading(request.method) && request.accepts(['json', 'html']) === 'html')
    return response.redirect(303, `/login?next=${encodeURIComponent(request.originalUrl)}`);
  // Only to scripts: a browser would open a password dialog of its own on top of the page.
  if (request.headers['sec-fetch-mode'] === undefined)
    response.set('www-authenticate', 'Basic realm="sutler", charset="UTF-8"');
  const detail = 'not logged in: reload the page, or send user and password by HTTP basic';
  refuse(response, 401, detail);
}

const OWN_PAGE = /^\/(?:(?:queues|claims|volumes|drivers)\/|\?|$)(?!.*\.\.)[\w./~%?=&:@+,-]*$/;

/** The page to open after the login: only one of the dashboard, so that a link to the login can't
 * lead to another site. */
function safeNext(next: unknown): string {
  return typeof next === 'string' && OWN_PAGE.test(next) ? next : '/';
}

function basicOf(
  request: Request,
): { readonly user: string; readonly password: string } | undefined {
  const encoded = /^Basic ([A-Za-z0-9+/=_-]+)$/i.exec(request.headers.authorization ?? '')?.[1];
  if (encoded === undefined) return undefined;
  const [user = '', ...password] = Buffer.from(encoded, 'base64').toString().split(':');
  return { user, password: password.join(':') };
}
