import { openRedis } from '#src/redis/connection.ts';
import { checkSettings } from '#src/redis/settings.ts';
import type { Clock } from '#src/runtime/clock.ts';
import type { Logger } from '#src/runtime/log.ts';

/** Waits until a given Redis is usable, saying what keeps it from being so; then says which of its
 * settings risk volumes. */
export async function redisReady(
  url: string,
  o: {
    readonly say: (line: string) => unknown;
    readonly stopping: AbortSignal;
    readonly clock: Clock;
    readonly log: Logger;
  },
): Promise<void> {
  const link = openRedis({
    url,
    role: 'plain',
    name: 'sutler-sandbox',
    log: o.log.child({}, { level: 'error' }),
  });
  let told: string | undefined;
  try {
    for (let tries = 0; link.trouble !== undefined && !o.stopping.aborted; tries += 1) {
      // A connection takes a moment; only what lasts is worth a line.
      if (tries > 10 && link.trouble !== told) {
        told = link.trouble;
        o.say(`waiting: ${told}`);
      }
      await o.clock.sleep(100, o.stopping);
    }
    if (!o.stopping.aborted)
      for (const problem of await checkSettings(link.redis)) o.say(`warning: ${problem}`);
  } finally {
    link.close();
  }
}
