import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { isIP } from 'node:net';
import type { Request, RequestHandler, Response } from 'express';
import { ipKeyGenerator } from 'express-rate-limit';
import QuickLRU from 'quick-lru';
import type { Logger } from '../runtime/log.ts';
import { metricsIn, type Registry } from '../runtime/metrics.ts';
import { refuse } from './refusals.ts';

/** The sender of a request. */
export interface Caller {
  readonly user: string;
  /** Whether the user may act, or only read. */
  readonly mayAct: boolean;
}

export interface LoginOptions {
  readonly accounts: readonly (Caller & { readonly password: string })[];
  readonly log: Logger;
  readonly metrics: Registry;
  /** How long wrong passwords count; by default a minute. */
  readonly failureWindowMs?: number;
}

/** Returns the sender of a request that `login` has passed on. */
export function callerOf({ locals }: Response): Caller {
  return locals['caller'] as Caller;
}

/** Wrong passwords within the window after which a network is refused. */
export const MAX_FAILURES = 5;
const WINDOW_MS = 60_000;
/** Most networks whose wrong passwords are counted. */
const MAX_NETWORKS = 10_000;
/** A /64 of IPv6 addresses is likely to be one person's. */
const IPV6_PREFIX_BITS = 64;
const COOKIE = 'sutler_known';

/** Passes on the requests of users, who send their password by HTTP basic. After too many wrong
 * passwords from a network, refuses even the right one, so that a guess teaches nothing. A browser
 * that has logged in before is exempt, so that nobody can lock it out; a cookie proves that. The
 * cookie is worth nothing without the password. */
export function login(options: LoginOptions): RequestHandler {
  const { accounts, log, failureWindowMs = WINDOW_MS } = options;
  const failures = new QuickLRU<string, number>({
    maxSize: MAX_NETWORKS,
    maxAge: failureWindowMs,
  });
  const key = randomBytes(32);
  const results = metricsIn(options.metrics).counter(
    'sutler_dashboard_logins_total',
    'Passwords sent to the dashboard, by result: ok, wrong, limited.',
    ['result'],
  );
  for (const result of ['ok', 'wrong', 'limited']) results.inc({ result }, 0);

  return (request, response, next) => {
    const sent = credentialsOf(request);
    if (sent === undefined)
      return askForPassword(response, 'send user and password by HTTP basic, or reload the page');
    const mark = createHmac('sha256', key).update(sent).digest('base64url');
    const isKnown = isEqual(cookieOf(request), mark);
    const network = ipKeyGenerator(addressOf(request), IPV6_PREFIX_BITS);
    const count = failures.get(network) ?? 0;
    if (!isKnown && count >= MAX_FAILURES) {
      results.inc({ result: 'limited' });
      const waitSeconds = Math.ceil((failures.expiresIn(network) ?? 0) / 1_000);
      response.set('retry-after', String(waitSeconds));
      return refuse(response, 429, `too many wrong passwords: try again in ${waitSeconds} s`);
    }
    // Takes the same time for every password.
    const matches = accounts.map(({ user, password }) => isEqual(sent, `${user}:${password}`));
    const account = accounts[matches.indexOf(true)];
    if (account === undefined) {
      results.inc({ result: 'wrong' });
      failures.set(network, count + 1);
      const fields = { address: addressOf(request), path: request.path };
      log.warn(fields, 'dashboard: wrong user or password');
      return askForPassword(response, 'wrong user or password');
    }
    if (!isKnown) {
      results.inc({ result: 'ok' });
      const secure = request.secure;
      response.cookie(COOKIE, mark, { httpOnly: true, sameSite: 'strict', secure });
    }
    response.locals['caller'] = { user: account.user, mayAct: account.mayAct };
    next();
  };
}

/** Reads "user:password" from HTTP basic; undefined if none was sent. */
function credentialsOf({ headers }: Request): string | undefined {
  const [, encoded] = /^Basic ([A-Za-z0-9+/=_-]+)$/i.exec(headers.authorization ?? '') ?? [];
  return encoded === undefined ? undefined : Buffer.from(encoded, 'base64').toString();
}

function cookieOf({ headers }: Request): string {
  return new RegExp(`(?:^|; ?)${COOKIE}=([\\w-]+)`).exec(headers.cookie ?? '')?.[1] ?? '';
}

/** Returns the client's address: the connection's, or the one that trusted proxies report. */
function addressOf({ ip = '', socket }: Request): string {
  // A proxy may report something that is not an address.
  const address = isIP(ip) === 0 ? (socket.remoteAddress ?? '') : ip;
  return address.split('%')[0] ?? '';
}

function isEqual(given: string, expected: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(expected));
}

function askForPassword(response: Response, detail: string): void {
  // Only for navigation: the browser's dialog would cover a page whose script asks.
  if ((response.req.headers['sec-fetch-mode'] ?? 'navigate') === 'navigate')
    response.set('www-authenticate', 'Basic realm="sutler", charset="UTF-8"');
  refuse(response, 401, detail);
}

/** Whether a request changes nothing. */
export function isReading({ method }: Request): boolean {
  return method === 'GET' || method === 'HEAD';
}

/** Refuses requests that change something, unless a page of the dashboard sent them. A page of
 * another site can make the browser send a request, and the browser adds the password. */
export const refuseOtherSites: RequestHandler = (request, response, next) => {
  const { 'sec-fetch-site': site, origin, host } = request.headers;
  // Scripts can't set this header, and it is right even behind a proxy that rewrites Host.
  const isOurs =
    typeof site === 'string'
      ? site === 'same-origin'
      : origin === undefined || (URL.canParse(origin) && new URL(origin).host === host);
  if (isReading(request) || isOurs) next();
  else refuse(response, 403, 'only the dashboard’s own pages may change something');
};
