import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Registry } from 'prom-client';
import type { HealthChecks } from './health.ts';
import { HttpServer } from './http-server.ts';
import type { Logger } from './log.ts';
import type { processFlags } from './process-flags.ts';
import type { ProcessContext } from './process.ts';

interface HttpOptions {
  readonly address: string;
  readonly metrics?: Registry;
  readonly metricsPath?: string;
  /** Checks may be added while the server runs. */
  readonly health: HealthChecks;
  readonly log: Logger;
}

/** Serves --http-endpoint, where it is set, until the process closes.
 * @returns the address, for `announce`
 * @throws UsageError as startHttp does */
export async function openHttpEndpoint(
  context: Pick<
    ProcessContext<typeof processFlags>,
    'flags' | 'health' | 'metrics' | 'log' | 'closers'
  >,
): Promise<Readonly<Record<string, string>>> {
  const { flags, health, metrics, log, closers } = context;
  if (flags.httpEndpoint === '') return {};
  const address = flags.httpEndpoint;
  const http = await startHttp({ address, metrics, metricsPath: flags.metricsPath, health, log });
  closers.add('HTTP', () => http.close());
  return { http: http.url };
}

/** Longest pause of a client that reads an answer. */
const IDLE_MS = 10_000;
/** All who ask for the metrics within this time get one text: collecting costs milliseconds. */
const FRESH_MS = 1_000;

/** Serves metrics and the health checks: /healthz, /readyz, and one check alone below them
 * (/readyz/NAME).
 * @throws UsageError when the port is taken or the address is not this machine's */
export function startHttp(options: HttpOptions): ReturnType<HttpServer['listen']> {
  const { metrics, metricsPath = '/metrics', health, log } = options;
  const pages: Pages = { health, metricsPath, metrics, readMetrics: collectOnce(metrics) };
  let logged: unknown;
  const server = new HttpServer({ idleMs: IDLE_MS }, (request, response) => {
    serve(pages, request, response).catch((error: unknown) => {
      // All who asked for the same collection get the same error.
      if (error !== logged) log.error({ err: error }, 'HTTP request failed');
      logged = error;
      if (!response.headersSent) response.writeHead(500, { 'content-type': 'text/plain' });
      response.end('internal error: see the log of this process\n');
    });
  });
  return server.listen('http-endpoint', options.address);
}

interface Pages {
  readonly health: HealthChecks;
  readonly metrics: Registry | undefined;
  readonly metricsPath: string;
  readonly readMetrics: () => Promise<Buffer>;
}

/** Collects the metrics once for all who ask at about the same time. They get the same bytes, or
 * the same error. */
function collectOnce(metrics: Registry | undefined): () => Promise<Buffer> {
  let text: Promise<Buffer> | undefined;
  const collect = async (): Promise<Buffer> => {
    try {
      return Buffer.from((await metrics?.metrics()) ?? '');
    } finally {
      setTimeout(() => (text = undefined), FRESH_MS).unref();
    }
  };
  return () => (text ??= collect());
}

async function serve(
  { health, metrics, metricsPath, readMetrics }: Pages,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const path = (request.url ?? '/').split('?')[0] ?? '/';
  const [, page, name] = /^\/(healthz|readyz)(?:\/(.*))?$/.exec(path) ?? [];
  if (request.method !== 'GET' && request.method !== 'HEAD') {
    // A body that is not read would keep the connection busy.
    const headers = { 'content-type': 'text/plain', allow: 'GET, HEAD', connection: 'close' };
    response.writeHead(405, headers).end('only GET and HEAD are answered here\n');
  } else if (page !== undefined) {
    const { code, text } = health.answer(page === 'healthz' ? 'live' : 'ready', name ?? '');
    response.writeHead(code, { 'content-type': 'text/plain; charset=utf-8' }).end(text);
  } else if (metrics !== undefined && path === metricsPath) {
    const text = await readMetrics();
    response.writeHead(200, { 'content-type': metrics.contentType }).end(text);
  } else {
    response
      .writeHead(404, { 'content-type': 'text/plain' })
      .end('not found: try /healthz, /readyz, /metrics\n');
  }
}
