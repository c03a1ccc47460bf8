import express, { type ErrorRequestHandler, type Express, type RequestHandler } from 'express';
import helmet from 'helmet';
import { describeRedisError } from '../redis/error-text.ts';
import type { RedisLink } from '../redis/connection.ts';
import { HttpServer } from '../runtime/http-server.ts';
import { Boards, BOARDS_PATH, type BoardsOptions } from './boards.ts';
import { guardActions, login, type LoginOptions } from './login.ts';
import { pendingRoutes } from './pending-routes.ts';
import { refuse, RequestRefused, sendUnavailable } from './refusals.ts';
import { checkRequests, parseHosts, parseProxies } from './request-checks.ts';

export interface DashboardOptions extends LoginOptions, BoardsOptions {
  /** "127.0.0.1:8088", ":8088", "[::1]:0". */
  readonly address: string;
  /** Value of --dashboard-hosts. */
  readonly hosts: readonly string[];
  /** Value of --dashboard-trusted-proxies. */
  readonly trustedProxies: readonly string[];
  /** Time limit for the answer of one page. */
  readonly answerMs?: number;
}

const BOARDS_ONLY_SHOW =
  'nobody acts in the queues: that bypasses what keeps a key from running twice; ' +
  'retry a claim or volume on its own page';

/** Longer than the limit of one Redis command, so that the command's own error arrives first. */
const ANSWER_MS = 8000;
/** Longest pause of a client that receives an answer. */
const IDLE_MS = 60_000;

/** Starts to listen, whether or not Redis can be reached.
 * @returns `url`: of the first page
 * @throws UsageError when the port is taken, the address is not this machine's, or a host or proxy
 * is none */
export async function startDashboard(options: DashboardOptions) {
  const boards = new Boards(options);
  const server = new HttpServer({ idleMs: IDLE_MS }, createApp(options, boards));
  const { url, close } = await server.listen('dashboard-address', options.address);
  return {
    url: `${url}/`,
    async close(): Promise<void> {
      await close();
      await boards.close();
    },
  };
}

function createApp(options: DashboardOptions, boards: Boards): Express {
  const app = express();
  app.disable('x-powered-by');
  // Whose X-Forwarded-For and X-Forwarded-Proto Express believes.
  app.set('trust proxy', parseProxies(options.trustedProxies));
  app.use(securityHeaders, limitCaching);
  app.use(checkRequests(parseHosts(options.address, options.hosts)));
  app.use(login(options));
  app.use(limitTime(options.answerMs ?? ANSWER_MS));
  app.use(requireRedis(options.link));
  app.use(pendingRoutes(options));
  app.use(
    BOARDS_PATH,
    guardActions(options.log, BOARDS_ONLY_SHOW),
    refreshBoards(boards),
    boards.router,
  );
  app.use((_request, response) => {
    const detail = `there is no such page; the queues are at ${BOARDS_PATH}/`;
    refuse(response, 404, detail);
  });
  app.use(answerErrors(options));
  return app;
}

const securityHeaders = helmet({
  // The dashboard's own scripts and styles, and the inline styles that Bull Board sets.
  contentSecurityPolicy: {
    useDefaults: false,
    directives: {
      defaultSrc: ["'none'"],
      scriptSrc: ["'self'"],
      workerSrc: ["'self'"],
      styleSrc: ["'self'", "'unsafe-inline'"],
      imgSrc: ["'self'", 'data:'],
      fontSrc: ["'self'", 'data:'],
      connectSrc: ["'self'"],
      baseUri: ["'self'"],
      formAction: ["'self'"],
      frameAncestors: ["'none'"],
    },
  },
  frameguard: { action: 'deny' },
  // With no-referrer, the browser would hide the origin of the dashboard's own forms too.
  referrerPolicy: { policy: 'same-origin' },
  // That is for the proxy to say, which has the TLS.
  strictTransportSecurity: false,
});

const limitCaching: RequestHandler = (request, response, next) => {
  response.set('permissions-policy', 'camera=(), geolocation=(), microphone=()');
  if (!isAsset(request.path)) response.set('cache-control', 'no-store');
  next();
};

function isAsset(path: string): boolean {
  return path.startsWith(`${BOARDS_PATH}/static/`);
}

/** Answers 503 if the board does not answer in time, as while Redis hangs. */
function limitTime(limitMs: number): RequestHandler {
  return (_request, response, next) => {
    const timer = setTimeout(() => {
      if (response.headersSent) return;
      // So that the board's own late answer is dropped.
      response.set('connection', 'close');
      const trouble = `Redis did not answer within ${limitMs / 1000} s; try again`;
      sendUnavailable(response, trouble);
    }, limitMs);
    response.once('close', () => clearTimeout(timer));
    next();
  };
}

/** Answers 503 at once while Redis can't be reached. */
function requireRedis(link: RedisLink): RequestHandler {
  return ({ path }, response, next) => {
    if (link.trouble === undefined || isAsset(path)) next();
    else sendUnavailable(response, link.trouble);
  };
}

function refreshBoards(boards: Boards): RequestHandler {
  return async ({ baseUrl, path }, response, next) => {
    if (!isAsset(baseUrl + path)) await boards.refresh();
    if (!response.headersSent) next();
  };
}

/** Answers what a handler throws: a refusal, or an error of Redis. */
function answerErrors({ log, link }: Pick<DashboardOptions, 'log' | 'link'>): ErrorRequestHandler {
  // Express recognises an error handler by its four parameters.
  return (error: unknown, { path }, response, _next) => {
    if (response.headersSent)
      return log.debug({ err: error, path }, 'dashboard: a handler failed after its time limit');
    if (error instanceof RequestRefused) return refuse(response, error.status, error.message);
    const status = statusOf(error);
    if (status < 500) return refuse(response, status, 'the request is invalid');
    log.warn({ err: error, path }, 'dashboard: could not answer a request');
    sendUnavailable(response, link.trouble ?? describeRedisError(link.address, error));
  };
}

/** The status that body-parser and the router set on their errors. */
function statusOf(error: unknown): number {
  if (typeof error !== 'object' || error === null || !('status' in error)) return 500;
  return typeof error.status === 'number' && error.status >= 400 ? error.status : 500;
}
