import { randomBytes } from 'node:crypto';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Logger } from '#src/runtime/log.ts';
import type { Review } from './admission/review.ts';
import { WebhookAdmission } from './admission/webhook-admission.ts';
import { expired } from './api-error.ts';
import { Access } from './http/access.ts';
import { makeCertificate } from './http/certificate.ts';
import type { Faults } from './http/faults.ts';
import { Handler } from './http/handler.ts';
import { formatKubeconfig } from './http/kubeconfig.ts';
import type { RequestCounts } from './http/request-counts.ts';
import { Routes } from './http/routes.ts';
import { namespaces } from './kinds/core.ts';
import { Operations } from './operations.ts';
import { Registry } from './registry.ts';
import { Store } from './store.ts';

export interface SandboxApiOptions {
  /** Loopback port; 0 takes a free one. */
  readonly port?: number;
  /** The only credential. Default: random. */
  readonly token?: string;
  /** Changes kept per kind for watches that resume; older ones get 410. Default: 10,000. */
  readonly historySize?: number;
  /** Time between bookmarks of a watch. Default: a minute, as on a real server. */
  readonly bookmarkIntervalMs?: number;
  /** Duration of a watch without a time-out. Default: half an hour. */
  readonly watchTimeoutMs?: number;
  readonly nowMs?: () => number;
  readonly log: Logger;
}

/** A running Kubernetes API on loopback. Its objects live in memory only. */
export interface SandboxApi {
  readonly url: string;
  /** The certificate that clients must trust, as PEM. */
  readonly ca: string;
  readonly token: string;
  /** The text of a kubeconfig for it. */
  kubeconfig(): string;
  /** The same operations without HTTP. */
  readonly operations: Operations;
  readonly store: Store;
  readonly faults: Faults;
  readonly requests: RequestCounts;
  /** Number of running watches of a kind (plural), or of all kinds. */
  watchCount(plural?: string): number;
  /** Ends the running watches of a kind, or of all kinds: by closing the connection (`cut`),
   * cleanly (`end`), or with an ERROR event 410 (`expire`).
   * @returns how many */
  stopWatches(how: 'cut' | 'end' | 'expire', plural?: string): number;
  close(): Promise<void>;
}

const HALF_AN_HOUR_MS = 30 * 60 * 1000;
const FIRST_NAMESPACES = ['default', 'kube-node-lease', 'kube-public', 'kube-system'];

/** Starts the API. It listens when the promise resolves.
 * @throws Error with code EADDRINUSE where the port is taken */
export async function startSandboxApi(options: SandboxApiOptions): Promise<SandboxApi> {
  const nowMs = options.nowMs ?? (() => Date.now());
  const registry = new Registry();
  const store = new Store({ historySize: options.historySize ?? 10_000 });
  const admission = new WebhookAdmission(store, options.log);
  const announce = (review: Review) => admission.announce(review);
  const operations = new Operations({ registry, store, nowMs, announce });
  for (const name of FIRST_NAMESPACES)
    operations.create(namespaces, undefined, { metadata: { name } });
  const certificate = makeCertificate(nowMs());
  const token = options.token ?? randomBytes(24).toString('base64url');
  const server = createServer({
    ...certificate,
    keepAliveTimeout: 120_000,
    requestTimeout: 60_000,
  });
  const port = await listen(server, options.port ?? 0);
  const routes = new Routes(operations, admission, {
    bookmarkIntervalMs: options.bookmarkIntervalMs ?? 60_000,
    watchTimeoutMs: options.watchTimeoutMs ?? HALF_AN_HOUR_MS,
    nowMs,
  });
  const handler = new Handler({
    access: new Access(token, port),
    registry,
    routes,
    log: options.log,
  });
  server.on('request', (request, response) => void handler.handle(request, response));
  const url = `https://127.0.0.1:${port}`;
  const ca = certificate.cert;
  const watchesOf = (plural?: string) =>
    [...routes.watches].filter((each) => plural === undefined || each.resource.plural === plural);
  return {
    url,
    ca,
    token,
    kubeconfig: () => formatKubeconfig({ url, ca, token }),
    operations,
    store,
    faults: handler.faults,
    requests: handler.requests,
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
      admission.close();
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
