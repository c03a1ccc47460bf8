import { rm, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { startRedisServer, type TcpRedisServer } from './redis-server.ts';

/** A redis-server for one test file, with functions that inject faults. */
export interface TestRedis {
  readonly url: string;
  readonly port: number;
  readonly dataDir: string;
  /** A connection for the test itself; it reconnects. */
  readonly redis: Redis;
  readonly pid: number;
  /** Sends SIGKILL. */
  kill(): Promise<void>;
  /** Starts it again on the same port with the data it has. */
  start(): Promise<void>;
  /** Starts it again without data. */
  startEmpty(): Promise<void>;
  /** Sends SIGSTOP: the server accepts connections, but does not answer until `thaw`. */
  freeze(): void;
  thaw(): void;
  /** Number of executed commands by name, since the last reset of the statistics. */
  commands(): Promise<Record<string, number>>;
  close(): Promise<void>;
}

export async function startTestRedis(
  o: { readonly settings?: readonly string[] } = {},
): Promise<TestRedis> {
  const dataDir = await mkdtemp(join(tmpdir(), 'sutler-redis-'));
  const settings = ['appendonly yes', 'appendfsync always', ...(o.settings ?? [])];
  let server: TcpRedisServer = await startRedisServer({ dataDir, settings });
  const { url, port } = server;
  const password = decodeURIComponent(new URL(url).password);
  const redis = new Redis(url, {
    retryStrategy: () => 50,
    maxRetriesPerRequest: null,
    disconnectTimeout: 100,
  });
  redis.on('error', () => undefined);
  const restart = async (): Promise<void> => {
    server = await startRedisServer({ dataDir, settings, port, password });
  };
  return {
    url,
    port,
    dataDir,
    redis,
    get pid() {
      return server.pid;
    },
    kill: () => server.close(0),
    start: restart,
    startEmpty: async () => {
      await rm(dataDir, { recursive: true, force: true });
      await restart();
    },
    freeze: () => void process.kill(server.pid, 'SIGSTOP'),
    thaw: () => void process.kill(server.pid, 'SIGCONT'),
    commands: async () => {
      const text = await redis.info('commandstats');
      return Object.fromEntries(
        [...text.matchAll(/cmdstat_([^:]+):calls=(\d+)/g)].map(([, name, calls]) => [
          name ?? '',
          Number(calls),
        ]),
      );
    },
    close: async () => {
      redis.disconnect();
      await server.close(1000);
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}
