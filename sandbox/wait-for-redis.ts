import type { RedisAccess } from '#src/redis/access.ts';
import { openRedis } from '#src/redis/connection.ts';
import { checkSettings } from '#src/redis/settings.ts';
import type { Clock } from '#src/runtime/clock.ts';
import type { Logger } from '#src/runtime/log.ts';

/** Connecting takes some time; only a problem that lasts longer is reported. */
const REPORT_AFTER_TRIES = 10;
const RETRY_MS = 100;

/** Waits until a given Redis is usable, and prints what is missing. Then prints a warning for each
 * of its settings that endangers volumes. */
export async function waitForRedis(
  url: string,
  o: {
    readonly access: RedisAccess;
    readonly print: (line: string) => unknown;
    readonly stopping: AbortSignal;
    readonly clock: Clock;
    readonly log: Logger;
  },
): Promise<void> {
  const link = openRedis({
    url,
    access: o.access,
    role: 'plain',
    name: 'sutler-sandbox',
    log: o.log.child({}, { level: 'error' }),
  });
  let reported: string | undefined;
  try {
    for (let tries = 0; link.trouble !== undefined && !o.stopping.aborted; tries += 1) {
      if (tries > REPORT_AFTER_TRIES && link.trouble !== reported) {
        reported = link.trouble;
        o.print(`Waiting for Redis: ${reported}`);
      }
      await o.clock.sleep(RETRY_MS, o.stopping);
    }
    if (o.stopping.aborted) return;
    for (const problem of await checkSettings(link.redis)) o.print(`Warning: ${problem}`);
  } finally {
    link.close();
  }
}
