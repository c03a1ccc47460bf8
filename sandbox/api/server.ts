import { randomBytes } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Logger } from '#src/runtime/log.ts';
import { expired } from './api-error.ts';
import { Handler, type Intercept } from './http/handler.ts';
import { formatKubeconfig } from './http/kubeconfig.ts';
import { Routes } from './http/routes.ts';
import { namespaces } from './kinds/core.ts';
import { Operations } from './operations.ts';
import { Registry } from './registry.ts';
import { Store } from './store.ts';

export interface SandboxApiOptions {
  /** Loopback port; 0 takes a free one. */
  readonly port?: number;
  /** Changes kept per kind for watches that resume; older ones get 410. Default: 10,000. */
  readonly historySize?: number;
  /** Time between bookmarks of a watch. Default: a minute, as on a real server. */
  readonly bookmarkIntervalMs?: number;
  /** Duration of a watch without a time-out. Default: half an hour. */
  readonly watchTimeoutMs?: number;
  readonly intercept?: Intercept;
  readonly log: Logger;
}

/** A running Kubernetes API on loopback. Its objects live in memory only. */
export interface SandboxApi {
  /** Contains the token, which is the only credential. */
  readonly url: string;
  /** The text of a kubeconfig for it. */
  kubeconfig(): string;
  /** The same operations without HTTP. */
  readonly operations: Operations;
  readonly store: Store;
  /** Number of running watches of a kind (plural), or of all kinds. */
  watchCount(plural?: string): number;
  /** Ends the running watches of a kind, or of all kinds: by closing the connection (`cut`),
   * cleanly (`end`), or with an ERROR event 410 (`expire`).
   * @returns how many it ended */
  stopWatches(how: 'cut' | 'end' | 'expire', plural?: string): number;
  close(): Promise<void>;
}

const HALF_AN_HOUR_MS = 30 * 60 * 1000;
const FIRST_NAMESPACES = ['default', 'kube-node-lease', 'kube-public', 'kube-system'];

/** Starts the API. It listens when the promise resolves.
 * @throws Error with code EADDRINUSE if the port is taken */
export async function startSandboxApi(options: SandboxApiOptions): Promise<SandboxApi> {
  const nowMs = () => Date.now();
  const registry = new Registry();
  const store = new Store({ historySize: options.historySize ?? 10_000 });
  const operations = new Operations(registry, store, nowMs);
  for (const name of FIRST_NAMESPACES)
    operations.create(namespaces, undefined, { metadata: { name } });
  const token = randomBytes(24).toString('base64url');
  const server = createServer({ keepAliveTimeout: 120_000, requestTimeout: 60_000 });
  const port = await listen(server, options.port ?? 0);
  const routes = new Routes(operations, {
    bookmarkIntervalMs: options.bookmarkIntervalMs ?? 60_000,
    watchTimeoutMs: options.watchTimeoutMs ?? HALF_AN_HOUR_MS,
    nowMs,
  });
  const handler = new Handler({
    token,
    registry,
    routes,
    intercept: options.intercept ?? (() => true),
    log: options.log,
  });
  server.on('request', (request, response) => void handler.handle(request, response));
  const url = `http://127.0.0.1:${port}/${token}`;
  const watchesOf = (plural?: string) =>
    [...routes.watches].filter((each) => plural === undefined || each.resource.plural === plural);
  return {
    url,
    kubeconfig: () => formatKubeconfig(url),
    operations,
    store,
    watchCount: (plural) => watchesOf(plural).length,
    stopWatches(how, plural) {
      const watches = watchesOf(plural);
      for (const watch of watches) {
        if (how === 'expire')
          watch.fail(expired('too old resource version: the history of this watch was compacted'));
        else watch[how]();
      }
      return watches.length;
    },
    async close() {
      for (const watch of routes.watches) watch.end();
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

async function listen(server: Server, port: number): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => {
      server.off('error', reject);
      resolve();
    });
  });
  return (server.address() as AddressInfo).port;
}
