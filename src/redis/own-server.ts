import { systemClock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { startRedisServer } from './server.ts';

const RESTART_MS = 500;

/** Starts a Redis server, and starts it again with its data, at the same address, whenever it ends.
 * @throws UsageError where no server is installed */
export async function keepRedisServer(options: { readonly dataDir: string; readonly log: Logger }) {
  const { log } = options;
  const closing = new AbortController();
  let server = await startRedisServer(options);
  const { url, port } = server;
  const { password } = new URL(url);

  const restartUntilClosed = async (): Promise<void> => {
    while (!closing.signal.aborted) {
      const how = await server.exited;
      if (closing.signal.aborted) return;
      log.warn({ how }, 'redis-server ended; starting it again with the data it had written');
      await systemClock.sleep(RESTART_MS, closing.signal);
      try {
        if (!closing.signal.aborted)
          server = await startRedisServer({ ...options, port, password });
      } catch (error) {
        log.error({ err: error }, 'redis-server does not start; trying again');
      }
    }
  };
  const restarting = restartUntilClosed();
  return {
    url,
    async close(): Promise<void> {
      closing.abort('closing');
      await server.close();
      await restarting;
    },
  };
}
