import { type Clock, systemClock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import type { RedisLink } from './connection.ts';
import { checkSettings, type SettingsReport } from './settings.ts';

const PERIOD_MS = 15_000;
/** Shorter while something is wrong, so that a correction is noticed soon. Not while only the
 * append-only file is missing, which may be so on purpose (--redis-without-aof). */
const TROUBLED_PERIOD_MS = 1_000;

export type SettingsWatch = ReturnType<typeof watchSettings>;

/** Checks at each connection, and every 15 s, whether Redis is set up so that it loses nothing.
 * Work goes on with wrong settings: stopping it would not make the data in Redis any safer. */
export function watchSettings(link: RedisLink, log: Logger, clock: Clock = systemClock) {
  let report: SettingsReport = { wrong: [], unknown: [], forgets: undefined };
  let known = '';
  const check = async (): Promise<number> => {
    if (link.trouble !== undefined) return PERIOD_MS;
    report = await checkSettings(link.redis);
    const { wrong, unknown, forgets } = report;
    const redis = link.address;
    const now = [...wrong, ...unknown, forgets].join('; ');
    if (now !== known) {
      if (wrong.length > 0)
        log.warn({ redis, problems: wrong }, 'Redis is set up so that volumes may be lost');
      if (forgets !== undefined)
        log.warn({ redis, problem: forgets }, 'Redis keeps no append-only file');
      if (unknown.length > 0) log.warn({ redis, unknown }, 'Redis does not tell all its settings');
      if (now === '') log.info({ redis }, 'the settings of Redis are right now');
    }
    known = now;
    return wrong.length === 0 ? PERIOD_MS : TROUBLED_PERIOD_MS;
  };
  const loop = new PollLoop({
    step: check,
    onError: (error) => log.debug({ err: error }, 'could not check the settings of Redis'),
    periodMs: PERIOD_MS,
    clock,
  });
  link.onReady(() => loop.runNow());
  return {
    /** For /readyz: the settings that risk volumes, each with its fix; undefined when all is well
     * or nothing is known yet. */
    get trouble(): string | undefined {
      return report.wrong.length === 0 ? undefined : report.wrong.join('; ');
    },
    /** For /readyz where nothing else keeps what Redis may forget. */
    get forgets(): string | undefined {
      return report.forgets;
    },
    close: () => void loop.stop(),
  };
}
