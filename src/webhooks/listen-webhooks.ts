import express from 'express';
import type { ErrorRequestHandler, Express, RequestHandler } from 'express';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Server as TlsServer, ServerOptions as TlsOptions } from 'node:https';
import {
  createLimitedServer,
  createLimitedTlsServer,
  type ServerLimits,
} from '../runtime/limited-server.ts';
import { listenHttp } from '../runtime/listen-http.ts';
import type { NewSocketLimits } from '../runtime/new-sockets.ts';
import type { TlsMaterial, TlsSource } from '../runtime/tls-files.ts';
import { sendProblem } from './send-answer.ts';
import type { SenderConnections } from './senders/sender-connections.ts';

/** As much as Node takes by default: a CloudEvent in binary mode is in its headers. */
const MAX_HEADER_BYTES = 16 * 1024;
/** A body takes 10 s at most, Redis 2 s, and who sends too much waits for up to 4 s. */
const ANSWER_MS = 18_000;
/** Longest wait, at the end of the process, for requests under way. */
const CLOSE_MS = 2_500;
const WAITS = { silentMs: 5_000, turnMs: 30_000 };
const NEW_SOCKETS: Readonly<Record<'plaintext' | 'tls', NewSocketLimits>> = {
  plaintext: { burst: 64, perSecond: 200, ...WAITS },
  // A handshake takes up to 2 ms of CPU.
  tls: { burst: 64, perSecond: 100, ...WAITS },
};

/** The one path that a server answers. */
export interface Route {
  readonly path: string;
  readonly answer: (request: IncomingMessage, response: ServerResponse) => Promise<void>;
  /** Answers methods other than POST; undefined if there are none. */
  readonly answerOptions?: RequestHandler;
}

export interface WebhookServerOptions {
  readonly route: Route;
  /** Flag of the address, without "--". */
  readonly flag: string;
  readonly address: string;
  readonly connections: SenderConnections;
  /** undefined for plaintext. */
  readonly tls: (TlsSource & { readonly requiresCertificate: boolean }) | undefined;
}

/** Starts a server of one route.
 * @throws UsageError when the port is in use or the address is not this machine's */
export async function listenWebhooks(
  options: WebhookServerOptions,
): Promise<{ readonly url: string; readonly close: () => Promise<void> }> {
  const { route, flag, address, connections, tls } = options;
  const app = createApp(route);
  let underWay = 0;
  const listener = (request: IncomingMessage, response: ServerResponse): void => {
    underWay += 1;
    response.once('close', () => (underWay -= 1));
    app(request, response);
  };
  const limits: ServerLimits = {
    answerMs: ANSWER_MS,
    connections,
    maxHeaderBytes: MAX_HEADER_BYTES,
    newSockets: NEW_SOCKETS[tls === undefined ? 'plaintext' : 'tls'],
  };
  const server =
    tls === undefined
      ? createLimitedServer(limits, listener)
      : createTls({ ...options, tls }, limits, listener);
  const { url, close } = await listenHttp(server, flag, address);
  return {
    url: `${url}${route.path}`,
    close: async () => {
      await waitUntil(() => underWay === 0, CLOSE_MS);
      await close();
    },
  };
}

function createTls(
  { tls }: { readonly tls: NonNullable<WebhookServerOptions['tls']> },
  limits: ServerLimits,
  listener: (request: IncomingMessage, response: ServerResponse) => void,
): Server | TlsServer {
  const options: TlsOptions = {
    ...secureContext(tls.current),
    requestCert: tls.current.ca !== '',
    rejectUnauthorized: tls.requiresCertificate,
  };
  const server = createLimitedTlsServer(limits, options, listener);
  tls.onChange((next, before) => {
    server.setSecureContext(secureContext(next));
    // Certificates that were accepted may not be any more.
    if (next.ca !== before.ca) server.closeAllConnections();
  });
  return server;
}

function secureContext({ ca, cert, key }: TlsMaterial) {
  return { cert, key, minVersion: 'TLSv1.3' as const, ...(ca === '' ? {} : { ca }) };
}

function createApp({ path, answer, answerOptions }: Route): Express {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.enable('case sensitive routing');
  app.enable('strict routing');
  app.post(path, (request, response) => answer(request, response));
  if (answerOptions !== undefined) app.options(path, answerOptions);
  app.all(path, (request, response) => {
    response.setHeader('allow', 'POST');
    const detail = `send events by POST ${path}`;
    sendProblem(request, response, { status: 405, detail, field: 'method' });
  });
  app.use((request, response) => {
    const detail = `send to POST ${path}`;
    sendProblem(request, response, { status: 404, detail, field: 'path' });
  });
  app.use(refuseBadPath);
  return app;
}

/** Express could not decode the path. It recognises an error handler by its four parameters. */
const refuseBadPath: ErrorRequestHandler = (_error: unknown, request, response, _next) => {
  response.setHeader('connection', 'close');
  sendProblem(request, response, { status: 400, detail: 'it can not be decoded', field: 'path' });
};

async function waitUntil(condition: () => boolean, withinMs: number): Promise<void> {
  const endMs = Date.now() + withinMs;
  while (!condition() && Date.now() < endMs) await new Promise((wake) => setTimeout(wake, 10));
}
