import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import express, { type ErrorRequestHandler, type Request, type Response } from 'express';
import { systemClock } from '../runtime/clock.ts';
import { listenHttp, TIME_LIMITS } from '../runtime/http-server.ts';
import type { Logger } from '../runtime/log.ts';
import type { ProcessContext } from '../runtime/process.ts';
import { openTlsFiles, type TlsMaterial, type TlsSource } from '../runtime/tls-files.ts';
import type { webhookFlags } from './flags.ts';
import type { WebhookMetrics } from './metrics.ts';
import type { NoticeStream } from './notices.ts';
import { RequestProblem, sendProblem } from './problem.ts';

/** A body takes 10 s at most, and Redis 5 s. */
const IDLE_MS = 20_000;
const HANDSHAKE_MS = 5_000;
/** Longest wait, at the end of the process, for requests under way. */
const CLOSE_MS = 2_500;

/** Answers the requests to a path. */
export interface Endpoint {
  /** Answers POST.
   * @throws RequestProblem */
  answer(request: Request, response: Response): Promise<void>;
  /** Handles an error that `answer` threw. */
  refuse(error: unknown, request: Request, response: Response): void;
  /** Answers OPTIONS; absent if nobody does. */
  readonly answerOptions?: (request: Request, response: Response) => void;
}

/** What both endpoints share. */
export interface EndpointContext {
  readonly stream: Pick<NoticeStream, 'append'>;
  readonly metrics: WebhookMetrics;
  readonly log: Logger;
  /** Aborts when the process stops. */
  readonly stopping: AbortSignal;
}

/** The flags that both servers have, each with its own prefix; '' = not given. */
export interface ServerFlags {
  readonly prefix: 'webhook' | 'admission';
  readonly address: string;
  /** TLS files. */
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

/** Opens a server that answers one path, until the process closes.
 * @returns its URL
 * @throws UsageError if a file or the address can't be used */
export async function openServer(
  context: Pick<ProcessContext<typeof webhookFlags>, 'closers' | 'health' | 'log'>,
  { prefix, address, ca, cert, key }: ServerFlags,
  path: string,
  endpoint: Endpoint,
): Promise<string> {
  const underWay = new Set<unknown>();
  const app = createApp(path, endpoint);
  const listener: RequestListener = (request, response) => {
    underWay.add(response);
    response.once('close', () => underWay.delete(response));
    app(request, response);
  };
  let server: Server | TlsServer;
  if (cert === '') server = createServer(TIME_LIMITS, listener);
  else {
    const own = `${prefix}-tls`;
    const tls = await openTlsFiles(context, `${own}-cert`, {
      ca: { flag: `${own}-client-ca`, path: ca },
      cert: { flag: `${own}-cert`, path: cert },
      key: { flag: `${own}-key`, path: key },
    });
    // Senders of events may show a token instead.
    server = createOverTls(tls, prefix === 'admission' && ca !== '', listener);
  }
  const { url, close } = await listenHttp(server, `${prefix}-address`, address, IDLE_MS);
  context.closers.add(`${prefix} server`, async () => {
    const endMs = Date.now() + CLOSE_MS;
    while (underWay.size > 0 && Date.now() < endMs) await systemClock.sleep(10);
    await close();
  });
  return `${url}${path}`;
}

/** @param requiresCertificate  whether the handshake refuses callers without a valid certificate */
function createOverTls(tls: TlsSource, requiresCertificate: boolean, listener: RequestListener) {
  const options = {
    ...TIME_LIMITS,
    ...secureContext(tls.current),
    handshakeTimeout: HANDSHAKE_MS,
    requestCert: tls.current.ca !== '',
    rejectUnauthorized: requiresCertificate,
  };
  const server = createTlsServer(options, listener);
  tls.onChange((next, before) => {
    server.setSecureContext(secureContext(next));
    // With a new authority, earlier certificates may no longer be valid.
    if (next.ca !== before.ca) server.closeAllConnections();
  });
  return server;
}

function secureContext({ ca, cert, key }: TlsMaterial) {
  return { cert, key, minVersion: 'TLSv1.3' as const, ...(ca === '' ? {} : { ca }) };
}

function createApp(path: string, endpoint: Endpoint) {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.enable('case sensitive routing');
  app.enable('strict routing');
  app.post(path, (request, response) => endpoint.answer(request, response));
  if (endpoint.answerOptions !== undefined) app.options(path, endpoint.answerOptions);
  app.all(path, (_, response) => {
    response.set('allow', 'POST');
    sendProblem(response, new RequestProblem(405, `send events by POST ${path}`, 'method'));
  });
  app.use((_, response) => {
    sendProblem(response, new RequestProblem(404, `send to POST ${path}`, 'path'));
  });
  // Express recognises an error handler by its four parameters.
  const onError: ErrorRequestHandler = (error: unknown, request, response, _next) => {
    const isBadPath = error instanceof URIError;
    const problem = new RequestProblem(400, 'it can not be decoded', 'path');
    endpoint.refuse(isBadPath ? problem : error, request, response);
  };
  return app.use(onError);
}
