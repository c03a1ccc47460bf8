import type { Redis } from 'ioredis';
import { messageOf } from '../runtime/error-message.ts';
import { isRefusal, NO_CLUSTER } from './error-text.ts';

/** What is wrong with the settings of Redis, one line each with its fix. */
export interface SettingsReport {
  /** Known to be wrong; empty when all is well. */
  readonly wrong: readonly string[];
  /** Not known: managed services hide some settings. */
  readonly unknown: readonly string[];
  /** Redis keeps no append-only file, as far as it says; undefined where it does. */
  readonly forgets: string | undefined;
}

/** Asks only INFO, because managed services often forbid CONFIG.
 * @throws what ioredis throws, unless Redis refused */
export async function checkSettings(redis: Pick<Redis, 'info'>): Promise<SettingsReport> {
  let text: string;
  try {
    text = await redis.info();
  } catch (error) {
    if (!isRefusal(error)) throw error;
    const fix = 'allow INFO, or check AOF, noeviction and version by hand';
    const line = `could not check Redis' settings (${messageOf(error)}): ${fix}`;
    return { wrong: [line], unknown: [], forgets: undefined };
  }
  const readFact = (name: string) => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(text)?.[1];
  const unknown = Object.entries(EXPECTED).flatMap(([name, line]) =>
    readFact(name) === undefined ? line : [],
  );
  return {
    wrong: CHECKS.flatMap((check) => check(readFact) ?? []),
    unknown,
    forgets: readFact('aof_enabled') === '1' ? undefined : FORGETS,
  };
}

/** Finds a value in the answer to INFO. */
type ReadFact = (name: string) => string | undefined;

const FORGETS =
  'Redis forgets volume records when it restarts (no append-only file): set appendonly yes; ' +
  'where it can’t have one, keep claims with --claim-finalizer, which closes that hole, ' +
  'or accept it with --redis-without-aof';

const EXPECTED = {
  redis_version: 'could not check the version of Redis: use 6.2 or later',
  maxmemory_policy: 'could not check the eviction policy of Redis: set maxmemory-policy noeviction',
};

const CHECKS: readonly ((readFact: ReadFact) => string | undefined)[] = [
  (readFact) => {
    const version = readFact('redis_version');
    const [major = 7, minor = 0] = version?.split('.').map(Number) ?? [];
    return major < 6 || (major === 6 && minor < 2)
      ? `Redis ${version} is too old: upgrade to 6.2 or later`
      : undefined;
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
