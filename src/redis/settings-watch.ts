import { performance } from 'node:perf_hooks';
import type { Logger } from '../runtime/log.ts';
import type { RedisLink } from './connection.ts';
import { checkSettings } from './settings.ts';

/** Whether Redis is set up so that it loses nothing. */
export interface SettingsWatch {
  /** For /readyz: the settings that risk volumes, each with its fix; undefined when all is well or
   * nothing is known yet. */
  readonly trouble: string | undefined;
  close(): void;
}

const PERIOD_MS = 15_000;
/** Shorter while something is wrong, so that a correction is noticed soon. */
const TROUBLED_PERIOD_MS = 1_000;

/** Checks the settings at each connection and every 15 s, so that a corrected setting is noticed
 * without a restart. Work goes on with wrong settings: stopping it would not make the data in Redis
 * any safer. */
export function watchSettings(link: RedisLink, log: Logger): SettingsWatch {
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
  let nextMs = 0;
  const timer = setInterval(() => {
    if (trouble === undefined && performance.now() < nextMs) return;
    nextMs = performance.now() + PERIOD_MS;
    void check();
  }, TROUBLED_PERIOD_MS);
  link.onReady(() => void check());
  return {
    get trouble() {
      return trouble;
    },
    close: () => clearInterval(timer),
  };
}
