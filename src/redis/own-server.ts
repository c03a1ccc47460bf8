import { systemClock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { startRedisServer } from './server.ts';
import type { RedisServer } from './server.ts';

/** A Redis of our own that is started again when it dies, at the same address. */
export interface OwnRedis {
  readonly url: string;
  close(): Promise<void>;
}

const RESTART_MS = 500;

/** Starts it and keeps it running. What it held is in its append-only file.
 * @throws UsageError where there is no server to start */
export async function keepRedisServer(options: {
  readonly dataDir: string;
  readonly log: Logger;
}): Promise<OwnRedis> {
  const { log } = options;
  const closing = new AbortController();
  let server: RedisServer = await startRedisServer(options);
  const { url, port } = server;
  const password = new URL(url).password;

  const keep = async (): Promise<void> => {
    while (!closing.signal.aborted) {
      const how = await server.exited;
      if (closing.signal.aborted) return;
      log.warn({ how }, 'redis-server ended; starting it again with what it had written');
      await systemClock.sleep(RESTART_MS, closing.signal);
      try {
        if (!closing.signal.aborted)
          server = await startRedisServer({ ...options, port, password });
      } catch (error) {
        log.error({ err: error }, 'redis-server does not start; trying again');
      }
    }
  };
  const kept = keep();
  return {
    url,
    async close() {
      closing.abort('closing');
      await server.close();
      await kept;
    },
  };
}
