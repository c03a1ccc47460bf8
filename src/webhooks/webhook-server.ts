import express, { type ErrorRequestHandler, type Express, type RequestHandler } from 'express';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { HttpServer } from '../runtime/http-server.ts';
import type { TlsMaterial, TlsSource } from '../runtime/tls-files.ts';
import { sendProblem } from './problem.ts';

/** As much as Node takes by default: a CloudEvent in binary mode is in its headers. */
const MAX_HEADER_BYTES = 16 * 1024;
/** A body takes 10 s at most, and Redis 2 s. */
const IDLE_MS = 15_000;
/** Longest wait, at the end of the process, for requests under way. */
const CLOSE_MS = 2_500;

/** The one path that a server answers. */
export interface Route {
  readonly path: string;
  /** @param identify  to be called once the sender has shown a credential */
  readonly answer: (
    request: IncomingMessage,
    response: ServerResponse,
    identify: () => void,
  ) => Promise<void>;
  /** Answers OPTIONS; undefined if nobody does. */
  readonly answerOptions?: RequestHandler;
}

/** Starts a server of one route.
 * @param o.flag  flag of the address, without "--"
 * @param o.tls   undefined for plaintext
 * @throws UsageError when the port is in use or the address is not this machine's */
export async function startWebhookServer(o: {
  readonly route: Route;
  readonly flag: string;
  readonly address: string;
  readonly tls: TlsSource | undefined;
  /** Whether callers without a certificate of the authority end with the handshake. */
  readonly requiresCertificate: boolean;
}): Promise<{ readonly url: string; readonly close: () => Promise<void> }> {
  const { route, tls } = o;
  const underWay = new Set<ServerResponse>();
  const server: HttpServer = new HttpServer(
    {
      idleMs: IDLE_MS,
      maxHeaderBytes: MAX_HEADER_BYTES,
      ...(tls && {
        tls: {
          ...secureContext(tls.current),
          requestCert: tls.current.ca !== '',
          rejectUnauthorized: o.requiresCertificate,
        },
      }),
    },
    (request, response) => {
      underWay.add(response);
      response.once('close', () => underWay.delete(response));
      app(request, response);
    },
  );
  const app = createApp(route, (request) => server.identify(request.socket));
  // Where the authority was replaced, certificates that were accepted may not be any more.
  tls?.onChange((next, before) => server.renewTls(secureContext(next), next.ca !== before.ca));
  const { url, close } = await server.listen(o.flag, o.address);
  return {
    url: `${url}${route.path}`,
    close: async () => {
      const endMs = Date.now() + CLOSE_MS;
      while (underWay.size > 0 && Date.now() < endMs)
        await new Promise((wake) => setTimeout(wake, 10));
      await close();
    },
  };
}

function secureContext({ ca, cert, key }: TlsMaterial) {
  return { cert, key, minVersion: 'TLSv1.3' as const, ...(ca === '' ? {} : { ca }) };
}

function createApp(
  { path, answer, answerOptions }: Route,
  identify: (request: IncomingMessage) => void,
): Express {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.enable('case sensitive routing');
  app.enable('strict routing');
  app.post(path, (request, response) => answer(request, response, () => identify(request)));
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
  sendProblem(request, response, { status: 400, detail: 'it can not be decoded', field: 'path' });
};
