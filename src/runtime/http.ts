import { createServer, type IncomingMessage } from 'node:http';
import type { HealthChecks } from './health.ts';
import { UsageError } from './flags.ts';
import { listenHttp, TIME_LIMITS } from './http-server.ts';
import { metricsIn, type Registry } from './metrics.ts';
import type { processFlags } from './process-flags.ts';
import type { ProcessContext } from './process.ts';

type Context = Pick<
  ProcessContext<typeof processFlags>,
  'flags' | 'health' | 'metrics' | 'log' | 'closers'
>;

/** Longest pause of a client that reads an answer. */
const IDLE_MS = 10_000;

/** If --http-endpoint is set, serves metrics, /healthz, /readyz and single checks (/readyz/NAME)
 * until the process closes. Checks may be added later.
 * @returns the address, for `announce`
 * @throws UsageError if both flags for it are set, or the address is taken or not this machine's */
export async function openHttpEndpoint(
  context: Context,
): Promise<Readonly<Record<string, string>>> {
  const { log, closers } = context;
  const { httpEndpoint, metricsAddress } = context.flags;
  // Upstream has two flags for the address (cmd/csi-provisioner/csi-provisioner.go).
  if (httpEndpoint !== '' && metricsAddress !== '')
    throw new UsageError('--metrics-address is the old name of --http-endpoint; remove it');
  const address = httpEndpoint || metricsAddress;
  if (address === '') return {};
  const server = createServer(TIME_LIMITS, (request, response) => {
    answer(context, request)
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
  const { url, close } = await listenHttp(server, 'http-endpoint', address, IDLE_MS);
  closers.add('HTTP', close);
  return { http: url };
}

interface Page {
  readonly code: number;
  readonly text: string;
  readonly headers?: Readonly<Record<string, string>>;
}

async function answer(
  { health, metrics, flags: { metricsPath } }: Context,
  { method, url = '/' }: IncomingMessage,
): Promise<Page> {
  const [path] = url.split('?');
  const [, page, name = ''] = /^\/(healthz|readyz)(?:\/(.*))?$/.exec(path ?? '') ?? [];
  if (method !== 'GET' && method !== 'HEAD') {
    // A body that is not read would keep the connection busy.
    const headers = { allow: 'GET, HEAD', connection: 'close' };
    return { code: 405, text: 'use GET or HEAD\n', headers };
  }
  if (page !== undefined) return health.answer(page === 'healthz' ? 'live' : 'ready', name);
  if (path !== metricsPath)
    return { code: 404, text: 'not found: try /healthz, /readyz, /metrics\n' };
  showFailedChecks(metrics, health);
  const headers = { 'content-type': metrics.contentType };
  return { code: 200, text: await metrics.metrics(), headers };
}

function showFailedChecks(metrics: Registry, health: HealthChecks): void {
  const failed = metricsIn(metrics).gauge(
    'sutler_check_failed',
    '1 for each check of /readyz that fails, by its name; absent if the check passes.',
    ['check'],
  );
  failed.reset();
  for (const line of health.troubles()) {
    const [, check] = /^\[-\]([^:]+): /.exec(line) ?? [];
    if (check !== undefined) failed.set({ check }, 1);
  }
}
