import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Registry } from 'prom-client';
import type { HealthChecks } from './health.ts';
import { listenHttp } from './listen-http.ts';
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

/** Serves metrics and the health checks: /healthz, /readyz, and one check alone below them
 * (/readyz/NAME).
 * @throws UsageError when the port is taken or the address is not this machine's */
export function startHttp(options: HttpOptions): ReturnType<typeof listenHttp> {
  const server = createServer((request, response) => {
    serve(options, request, response).catch((error: unknown) => {
      options.log.error({ err: error, path: request.url }, 'HTTP request failed');
      if (!response.headersSent) response.writeHead(500, { 'content-type': 'text/plain' });
      response.end('internal error: see the log of this process\n');
    });
  });
  return listenHttp(server, 'http-endpoint', options.address);
}

async function serve(
  options: HttpOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const path = (request.url ?? '/').split('?')[0] ?? '/';
  const [, page, name] = /^\/(healthz|readyz)(?:\/(.*))?$/.exec(path) ?? [];
  if (page !== undefined) {
    const { code, text } = options.health.answer(page === 'healthz' ? 'live' : 'ready', name ?? '');
    response.writeHead(code, { 'content-type': 'text/plain; charset=utf-8' }).end(text);
  } else if (options.metrics !== undefined && path === (options.metricsPath ?? '/metrics')) {
    const text = await options.metrics.metrics();
    response.writeHead(200, { 'content-type': options.metrics.contentType }).end(text);
  } else {
    response
      .writeHead(404, { 'content-type': 'text/plain' })
      .end('not found: try /healthz, /readyz, /metrics\n');
  }
}
