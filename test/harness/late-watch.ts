import { createServer, type ServerResponse } from 'node:http';
import { Agent, request } from 'node:https';
import { portOf } from './kube-proxy.ts';
import { statusOf } from './kube-server.ts';
import type { ApiServerUnderTest } from '../conformance/connection.ts';

/** An API server as a client sees it whose watch of claims is late. Needs no credentials. */
export interface LateWatch {
  readonly url: string;
  /** Each request that may have written, as `POST /api/v1/persistentvolumes`. */
  readonly writes: readonly string[];
  /** Ends all watches with an error 410: the client lists again. */
  expireWatches(): void;
  close(): Promise<void>;
}

const WATCH = /[?&]watch=(1|true)/;
const CLAIMS = /\/persistentvolumeclaims\?/;

/** Passes all requests on, and what watches of claims bring `lateMs` later. */
export async function startLateWatch(
  { url, tls = {}, token }: Omit<ApiServerUnderTest, 'close'>,
  lateMs: number,
): Promise<LateWatch> {
  const agent = new Agent({ ...tls, keepAlive: true });
  const credentials = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const watches = new Set<ServerResponse>();
  const writes: string[] = [];
  const server = createServer((asked, answer) => {
    const { method = '', url: path = '', headers } = asked;
    if (method !== 'GET') writes.push(`${method} ${path}`);
    const isWatch = WATCH.test(path);
    const isLate = isWatch && CLAIMS.test(path);
    if (isWatch) watches.add(answer);
    const passed = request(
      new URL(path, url),
      { method, agent, headers: { ...headers, ...credentials, host: new URL(url).host } },
      (answered) => {
        answer.writeHead(answered.statusCode ?? 502, answered.headers).flushHeaders();
        if (!isLate) return answered.pipe(answer);
        const later = (what: () => unknown) =>
          setTimeout(() => {
            if (!answer.writableEnded) what();
          }, lateMs);
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
  return {
    url: `http://127.0.0.1:${portOf(server)}`,
    writes,
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
