import { createServer } from 'node:http';
import express, { type ErrorRequestHandler, type Express, type RequestHandler } from 'express';
import helmet from 'helmet';
import { describeRedisError } from '../redis/error-text.ts';
import type { RedisLink } from '../redis/connection.ts';
import { messageOf } from '../runtime/error-message.ts';
import { UsageError } from '../runtime/flags.ts';
import { listenHttp, TIME_LIMITS } from '../runtime/http-server.ts';
import { Boards, BOARDS_PATH, type BoardsOptions } from './boards.ts';
import { isReading, login, type LoginOptions, refuseOtherSites } from './login.ts';
import { pendingRoutes } from './pending-routes.ts';
import { refuse, RequestRefused, sendUnavailable } from './refusals.ts';

export interface DashboardOptions extends LoginOptions, BoardsOptions {
  /** "127.0.0.1:8088", ":8088", "[::1]:0". */
  readonly address: string;
  /** Value of --dashboard-trusted-proxies. */
  readonly trustedProxies: readonly string[];
}

/** Longest pause of a client while it receives an answer. */
const IDLE_MS = 60_000;

/** Starts to listen, even if Redis can't be reached.
 * @returns `url`: of the first page
 * @throws UsageError if the port is taken, or an address or proxy can't be used */
export async function startDashboard(options: DashboardOptions) {
  const boards = new Boards(options);
  const server = createServer(TIME_LIMITS, createApp(options, boards));
  const { url, close } = await listenHttp(server, 'dashboard-address', options.address, IDLE_MS);
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
  trustProxies(app, options.trustedProxies);
  app.use(securityHeaders, limitCaching, refuseOddPaths);
  app.use(login(options), refuseOtherSites);
  app.use(requireRedis(options.link));
  app.use(pendingRoutes(options));
  app.use(BOARDS_PATH, onlyReads, boards.show);
  app.use((_request, response) => {
    const detail = `there is no such page; the queues are at ${BOARDS_PATH}/`;
    refuse(response, 404, detail);
  });
  app.use(answerErrors(options));
  return app;
}

/** Believes X-Forwarded-For and X-Forwarded-Proto of these proxies.
 * @throws UsageError */
function trustProxies(app: Express, proxies: readonly string[]): void {
  try {
    app.set('trust proxy', [...proxies]);
  } catch (error) {
    throw new UsageError(
      `--dashboard-trusted-proxies: ${messageOf(error)}; write 10.1.2.3 or 10.1.0.0/16`,
    );
  }
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
  // With no-referrer, the browser would also hide the origin of the dashboard's own forms.
  referrerPolicy: { policy: 'same-origin' },
  // The proxy with TLS sets this header.
  strictTransportSecurity: false,
});

const limitCaching: RequestHandler = (request, response, next) => {
  response.set('permissions-policy', 'camera=(), geolocation=(), microphone=()');
  // Names of Bull Board's files contain their version.
  if (!request.path.startsWith(`${BOARDS_PATH}/static/`)) response.set('cache-control', 'no-store');
  next();
};

/** Refuses whole URLs and control characters, which Node's parser would let into the log. */
const refuseOddPaths: RequestHandler = ({ url }, response, next) => {
  if (/^\/[\x21-\x7e]*$/.test(url)) next();
  else
    refuse(response, 400, 'the path must begin with / and contain only printable ASCII characters');
};

/** Allows no action in the queues, whatever Bull Board offers. */
const onlyReads: RequestHandler = (request, response, next) => {
  if (isReading(request)) next();
  else refuse(response, 403, 'the queues are read-only: retry a claim or volume on its own page');
};

/** Answers 503 at once while Redis can't be reached. */
function requireRedis(link: RedisLink): RequestHandler {
  return (_request, response, next) => {
    if (link.trouble === undefined) next();
    else sendUnavailable(response, link.trouble);
  };
}

/** Answers an error of a handler: a refusal, or an error of Redis. */
function answerErrors({ log, link }: Pick<DashboardOptions, 'log' | 'link'>): ErrorRequestHandler {
  // Express recognises an error handler by its four parameters.
  return (error: unknown, { path }, response, _next) => {
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
