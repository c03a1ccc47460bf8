import http, { createServer, type ServerResponse } from 'node:http';
import https from 'node:https';
import { portOf } from './kube-proxy.ts';
import { statusOf } from './kube-server.ts';
import type { ApiServerAccess } from '../conformance/connection.ts';

/** An API server as a client sees it whose watches are late. Needs no credentials. */
export interface LateWatch {
  readonly url: string;
  /** For a client that has no other. */
  readonly kubeconfig: object;
  /** Each request that may have written, as `POST /api/v1/persistentvolumes`. */
  readonly writes: readonly string[];
  /** The status of each of them that was answered. */
  readonly answers: readonly { readonly write: string; readonly status: number }[];
  /** Ends all watches with an error 410: the client lists again. */
  expireWatches(): void;
  close(): Promise<void>;
}

const WATCH = /[?&]watch=(1|true)/;

/** Passes all requests on, and what late watches bring later, in its order.
 * @param late.watches  what the paths of late watches match
 * @param late.wait     how late each part is */
export async function startLateWatch(
  { url, tls = {}, token }: ApiServerAccess,
  late: { readonly watches: RegExp; readonly wait: () => Promise<unknown> },
): Promise<LateWatch> {
  const { Agent, request } = url.startsWith('https:') ? https : http;
  const agent = new Agent({ ...tls, keepAlive: true });
  const credentials = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const watches = new Set<ServerResponse>();
  const writes: string[] = [];
  const answers: { write: string; status: number }[] = [];
  const server = createServer((asked, answer) => {
    const { method = '', url: path = '', headers } = asked;
    const write = `${method} ${path}`;
    if (method !== 'GET') writes.push(write);
    const isWatch = WATCH.test(path);
    const isLate = isWatch && late.watches.test(path);
    if (isWatch) watches.add(answer);
    const passed = request(
      `${url}${path}`,
      { method, agent, headers: { ...headers, ...credentials, host: new URL(url).host } },
      (answered) => {
        const { statusCode: status = 502 } = answered;
        answer.writeHead(status, answered.headers).flushHeaders();
        if (method !== 'GET') answers.push({ write, status });
        if (!isLate) return answered.pipe(answer);
        const later = (what: () => unknown): void =>
          void late.wait().then(() => {
            if (!answer.writableEnded) what();
          });
        answered.on('data', (chunk) => later(() => answer.write(chunk)));
        return answered.on('end', () => later(() => answer.end()));
      },
    );
    passed.on('error', () => answer.destroy());
    answer.on('close', () => {
      watches.delete(answer);
      passed.destroy();
    });
    asked.pipe(passed);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const own = `http://127.0.0.1:${portOf(server)}`;
  return {
    url: own,
    kubeconfig: kubeconfigOf(own),
    writes,
    answers,
    expireWatches() {
      const object = statusOf(410, 'Expired', 'too old resource version');
      for (const each of watches) each.end(`${JSON.stringify({ type: 'ERROR', object })}\n`);
    },
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      agent.destroy();
      await closed;
    },
  };
}

function kubeconfigOf(server: string): object {
  return {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'late', cluster: { server } }],
    users: [{ name: 'nobody', user: {} }],
    contexts: [{ name: 'late', context: { cluster: 'late', user: 'nobody' } }],
    'current-context': 'late',
  };
}
