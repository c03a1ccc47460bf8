import { rm, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { Redis } from 'ioredis';

import { startRedisServer, type RedisServer } from '#src/redis/server.ts';
import { silentLog } from '#src/runtime/log.ts';

/** A real redis-server with its own folder, one per test file, and the faults that tests inject. */
export interface TestRedis {
  readonly url: string;
  readonly port: number;
  readonly dataDir: string;
  /** A connection for looking; reconnects by itself. */
  readonly redis: Redis;
  readonly pid: number;
  /** SIGKILL. */
  kill(): Promise<void>;
  /** Starts it again on the same port with the data it has. */
  start(): Promise<void>;
  /** Starts it again without data. */
  startEmpty(): Promise<void>;
  /** SIGSTOP and SIGCONT: it accepts connections and answers nothing. */
  freeze(): void;
  thaw(): void;
  /** Commands that clients sent by name, since the last reset. */
  commands(): Promise<Record<string, number>>;
  close(): Promise<void>;
}

export async function startTestRedis(
  o: { readonly settings?: readonly string[] } = {},
): Promise<TestRedis> {
  const dataDir = await mkdtemp(join(tmpdir(), 'sutler-redis-'));
  const settings = ['appendfsync always', ...(o.settings ?? [])];
  let server: RedisServer = await startRedisServer({ dataDir, log: silentLog, settings });
  const { url, port } = server;
  const password = decodeURIComponent(new URL(url).password);
  const redis = new Redis(url, {
    retryStrategy: () => 50,
    maxRetriesPerRequest: null,
    disconnectTimeout: 100,
  });
  redis.on('error', () => undefined);
  const again = async (): Promise<void> => {
    server = await startRedisServer({ dataDir, log: silentLog, settings, port, password });
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
    start: again,
    startEmpty: async () => {
      await rm(dataDir, { recursive: true, force: true });
      await again();
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
