import type { Redis } from 'ioredis';
import { type Clock, systemClock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import type { RedisLink } from './connection.ts';
import { isRefusal, NO_CLUSTER } from './error-text.ts';

/** What is wrong with the settings of Redis, one line each with its fix. */
export interface SettingsReport {
  readonly version?: string | undefined;
  /** Known to be wrong; empty when all is well. */
  readonly wrong: readonly string[];
  /** Not known: managed services hide some settings. */
  readonly unknown: readonly string[];
}

/** Asks only INFO, because managed services often forbid CONFIG.
 * @throws what ioredis throws, unless Redis refused */
export async function checkSettings(redis: Pick<Redis, 'info'>): Promise<SettingsReport> {
  let text: string;
  try {
    text = await redis.info();
  } catch (error) {
    if (!isRefusal(error)) throw error;
    const fix = 'allow INFO, or check noeviction and version by hand';
    const line = `could not check Redis' settings (${messageOf(error)}): ${fix}`;
    return { wrong: [line], unknown: [] };
  }
  const readFact = (name: string) => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(text)?.[1];
  const unknown = Object.entries(EXPECTED).flatMap(([name, line]) =>
    readFact(name) === undefined ? line : [],
  );
  return {
    version: readFact('redis_version'),
    wrong: CHECKS.flatMap((check) => check(readFact) ?? []),
    unknown,
  };
}

/** Finds a value in the answer to INFO. */
type ReadFact = (name: string) => string | undefined;

const EXPECTED = {
  redis_version: 'could not check the version of Redis: use 7.0 or later',
  maxmemory_policy: 'could not check the eviction policy of Redis: set maxmemory-policy noeviction',
};

const CHECKS: readonly ((readFact: ReadFact) => string | undefined)[] = [
  (readFact) => {
    const version = readFact('redis_version');
    const [major = 7] = version?.split('.').map(Number) ?? [];
    return major < 7 ? `Redis ${version} is too old: upgrade to 7.0 or later` : undefined;
  },
  (readFact) => {
    const policy = readFact('maxmemory_policy') ?? 'noeviction';
    return policy === 'noeviction'
      ? undefined
      : `Redis may evict jobs (maxmemory-policy ${policy}): set maxmemory-policy noeviction`;
  },
  (readFact) =>
    readFact('cluster_enabled') === '1' || readFact('redis_mode') === 'cluster'
      ? `Redis runs in cluster mode: ${NO_CLUSTER}`
      : undefined,
  (readFact) =>
    readFact('role') === 'slave'
      ? 'Redis is a read-only replica: name the master in --redis-url, ' +
        'or the Sentinels, which know it'
      : undefined,
  (readFact) => {
    const limit = Number(readFact('maxmemory') ?? 0);
    return limit > 0 && Number(readFact('used_memory') ?? 0) > limit
      ? 'Redis is out of memory and takes no writes: raise maxmemory'
      : undefined;
  },
  (readFact) =>
    readFact('aof_last_write_status') === 'err'
      ? 'Redis could not write its append-only file: check its disk'
      : undefined,
];

const PERIOD_MS = 15_000;
/** Shorter while something is wrong, so that a correction is noticed soon. */
const TROUBLED_PERIOD_MS = 1_000;

/** Checks at each connection, and every 15 s, whether Redis is set up as sutler needs it: above all
 * so that it evicts nothing. Work goes on with wrong settings: stopping it would not bring back
 * what Redis evicted. */
export function watchSettings(
  link: RedisLink,
  log: Logger,
  { clock = systemClock }: { readonly clock?: Clock } = {},
) {
  let report: SettingsReport = { wrong: [], unknown: [] };
  let known = '';
  const check = async (): Promise<number> => {
    if (link.trouble !== undefined) return PERIOD_MS;
    report = await checkSettings(link.redis);
    const { wrong, unknown } = report;
    const redis = link.address;
    const now = [...wrong, ...unknown].join('; ');
    if (now !== known) {
      if (wrong.length > 0) log.warn({ redis, problems: wrong }, 'the settings of Redis are wrong');
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
    /** For /readyz: the wrong settings, each with its fix; undefined when all is well or nothing is
     * known yet. */
    get trouble(): string | undefined {
      return report.wrong.length === 0 ? undefined : report.wrong.join('; ');
    },
    close: () => void loop.stop(),
  };
}
