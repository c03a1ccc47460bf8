import { systemClock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import type { RedisLink } from './connection.ts';
import { checkSettings } from './settings.ts';

const PERIOD_MS = 15_000;
/** Shorter while something is wrong, so that a correction is noticed soon. */
const TROUBLED_PERIOD_MS = 1_000;

export type SettingsWatch = ReturnType<typeof watchSettings>;

/** Checks at each connection, and every 15 s, whether Redis is set up so that it loses nothing.
 * Work goes on with wrong settings: stopping it would not make the data in Redis any safer. */
export function watchSettings(link: RedisLink, log: Logger) {
  let trouble: string | undefined;
  const check = async (): Promise<void> => {
    if (link.trouble !== undefined) return;
    const problems = await checkSettings(link.redis);
    const text = problems.length === 0 ? undefined : problems.join('; ');
    if (text !== undefined && text !== trouble)
      log.warn({ redis: link.address, problems }, 'Redis is set up so that volumes may be lost');
    if (text === undefined && trouble !== undefined)
      log.info({ redis: link.address }, 'the settings of Redis are right now');
    trouble = text;
  };
  const loop = new PollLoop({
    step: () => check().then(() => (trouble === undefined ? PERIOD_MS : TROUBLED_PERIOD_MS)),
    onError: (error) => log.debug({ err: error }, 'could not check the settings of Redis'),
    periodMs: PERIOD_MS,
    clock: systemClock,
  });
  link.onReady(() => loop.runNow());
  return {
    /** For /readyz: the settings that risk volumes, each with its fix; undefined when all is well
     * or nothing is known yet. */
    get trouble(): string | undefined {
      return trouble;
    },
    close: () => void loop.stop(),
  };
}
