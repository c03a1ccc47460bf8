import type { IncomingMessage } from 'node:http';
import type { Registry } from 'prom-client';
import type { HealthChecks } from './health.ts';
import { UsageError } from './flags.ts';
import { HttpServer } from './http-server.ts';
import type { Logger } from './log.ts';
import { metricsIn } from './metrics.ts';
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
 * @throws UsageError where both flags for it are set, and as startHttp does */
export async function openHttpEndpoint(
  context: Pick<
    ProcessContext<typeof processFlags>,
    'flags' | 'health' | 'metrics' | 'log' | 'closers'
  >,
): Promise<Readonly<Record<string, string>>> {
  const { flags, health, metrics, log, closers } = context;
  const address = endpointOf(flags);
  if (address === '') return {};
  const http = await startHttp({ address, metrics, metricsPath: flags.metricsPath, health, log });
  closers.add('HTTP', () => http.close());
  return { http: http.url };
}

/** Upstream has two flags for it (cmd/csi-provisioner/csi-provisioner.go). */
function endpointOf({
  httpEndpoint,
  metricsAddress,
}: Readonly<Record<'httpEndpoint' | 'metricsAddress', string>>): string {
  if (httpEndpoint !== '' && metricsAddress !== '')
    throw new UsageError('--metrics-address: it is the old name of --http-endpoint; remove it');
  return httpEndpoint || metricsAddress;
}

/** Longest pause of a client that reads an answer. */
const IDLE_MS = 10_000;

/** Serves metrics and the health checks: /healthz, /readyz, and one check alone below them
 * (/readyz/NAME).
 * @throws UsageError when the port is taken or the address is not this machine's */
export function startHttp(options: HttpOptions): ReturnType<HttpServer['listen']> {
  const { log } = options;
  const server = new HttpServer({ idleMs: IDLE_MS }, (request, response) => {
    answer(options, request)
      .catch((error: unknown): Page => {
        log.error({ err: error }, 'HTTP request failed');
        return { code: 500, text: 'internal error: see the log of this process\n' };
      })
      .then(({ code, text, headers }) => {
        const type = { 'content-type': 'text/plain; charset=utf-8' };
        response.writeHead(code, { ...type, ...headers }).end(text);
      })
      .catch((error: unknown) => log.error({ err: error }, 'HTTP answer failed'));
  });
  return server.listen('http-endpoint', options.address);
}

function showFailedChecks(metrics: Registry, health: HealthChecks): void {
  const failed = metricsIn(metrics).gauge(
    'sutler_check_failed',
    '1 for each check of /readyz that fails, by its name; absent while it does not.',
    ['check'],
  );
  failed.reset();
  for (const line of health.troubles()) {
    const [, check] = /^\[-\]([^:]+): /.exec(line) ?? [];
    if (check !== undefined) failed.set({ check }, 1);
  }
}

interface Page {
  readonly code: number;
  readonly text: string;
  readonly headers?: Readonly<Record<string, string>>;
}

async function answer(
  { health, metrics, metricsPath = '/metrics' }: HttpOptions,
  { method, url = '/' }: IncomingMessage,
): Promise<Page> {
  const [path] = url.split('?');
  const [, page, name = ''] = /^\/(healthz|readyz)(?:\/(.*))?$/.exec(path ?? '') ?? [];
  if (method !== 'GET' && method !== 'HEAD') {
    // A body that is not read would keep the connection busy.
    const headers = { allow: 'GET, HEAD', connection: 'close' };
    return { code: 405, text: 'only GET and HEAD are answered here\n', headers };
  }
  if (page !== undefined) return health.answer(page === 'healthz' ? 'live' : 'ready', name);
  if (metrics === undefined || path !== metricsPath)
    return { code: 404, text: 'not found: try /healthz, /readyz, /metrics\n' };
  showFailedChecks(metrics, health);
  const headers = { 'content-type': metrics.contentType };
  return { code: 200, text: await metrics.metrics(), headers };
}
