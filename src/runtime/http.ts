import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Registry } from 'prom-client';
import { parseListenAddress } from './address.ts';
import { UsageError } from './flags.ts';
import type { Logger } from './log.ts';

/** One line of /healthz or /readyz: undefined is fine, a text says what is wrong. */
export interface Check {
  readonly name: string;
  readonly check: () => string | undefined;
}

export interface HttpOptions {
  /** ":8080", "127.0.0.1:0", "[::1]:80". */
  readonly address: string;
  readonly metrics?: Registry;
  readonly metricsPath?: string;
  readonly live?: readonly Check[];
  readonly ready?: readonly Check[];
  /** Serves what the paths above don't; returns false to leave a request alone. */
  readonly handler?: (request: IncomingMessage, response: ServerResponse) => boolean;
  readonly log: Logger;
}

export interface HttpServer {
  readonly url: string;
  close(): Promise<void>;
}

/** Serves /healthz, /readyz (200 "ok", else 503 with a line per check), each check alone below them
 * (/healthz/NAME), and metrics.
 * @throws UsageError when the port is taken or the address is not this machine's */
export async function startHttp(options: HttpOptions): Promise<HttpServer> {
  const { host, port } = parseListenAddress('http-endpoint', options.address);
  const server = createServer((request, response) => {
    serve(options, request, response).catch((error: unknown) => {
      options.log.error({ err: error, path: request.url }, 'HTTP request failed');
      if (!response.headersSent) response.writeHead(500, { 'content-type': 'text/plain' });
      response.end('internal error: see the log of this process\n');
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => {
      const why =
        cause.code === 'EADDRINUSE'
          ? 'the port is in use; stop its owner or choose another'
          : cause.message;
      reject(new UsageError(`--http-endpoint ${options.address}: ${why}`, { cause }));
    });
    server.listen(port, host, resolve);
  });
  const bound = server.address() as AddressInfo;
  const shownHost = host === undefined ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host;
  return {
    url: `http://${shownHost}:${bound.port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function serve(
  options: HttpOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const path = (request.url ?? '/').split('?')[0] ?? '/';
  if (path === '/healthz' || path.startsWith('/healthz/'))
    return answerChecks(options.live ?? [], path.slice('/healthz/'.length), response);
  if (path === '/readyz' || path.startsWith('/readyz/'))
    return answerChecks(options.ready ?? [], path.slice('/readyz/'.length), response);
  if (options.metrics !== undefined && path === (options.metricsPath ?? '/metrics')) {
    const text = await options.metrics.metrics();
    response.writeHead(200, { 'content-type': options.metrics.contentType }).end(text);
    return;
  }
  if (options.handler?.(request, response) === true) return;
  response
    .writeHead(404, { 'content-type': 'text/plain' })
    .end('not found: try /healthz, /readyz, /metrics\n');
}

function answerChecks(checks: readonly Check[], only: string, response: ServerResponse): void {
  const asked = only === '' ? checks : checks.filter((check) => check.name === only);
  const plain = { 'content-type': 'text/plain; charset=utf-8' };
  if (only !== '' && asked.length === 0) {
    response
      .writeHead(404, plain)
      .end(`no check ${only}; there are: ${checks.map((check) => check.name).join(', ')}\n`);
    return;
  }
  const results = asked.map(({ name, check }) => ({ name, wrong: check() }));
  const lines = results.map(({ name, wrong }) =>
    wrong === undefined ? `[+]${name} ok` : `[-]${name}: ${wrong}`,
  );
  const failed = results.some(({ wrong }) => wrong !== undefined);
  response
    .writeHead(failed ? 503 : 200, plain)
    .end(`${[...lines, failed ? 'not ok' : 'ok'].join('\n')}\n`);
}
