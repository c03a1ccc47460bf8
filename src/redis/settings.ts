import type { Redis } from 'ioredis';
import { messageOf } from '../runtime/error-message.ts';

/** Settings of Redis that risk volumes, one line each with its fix; empty when all is well. Asks
 * only INFO, because managed Redis often forbids CONFIG. */
export async function checkSettings(redis: Pick<Redis, 'info'>): Promise<string[]> {
  let text: string;
  try {
    text = await redis.info();
  } catch (error) {
    const fix = 'allow INFO, or check AOF, noeviction and version by hand';
    return [`could not check Redis' settings (${messageOf(error)}): ${fix}`];
  }
  const readFact = (name: string) => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(text)?.[1];
  return CHECKS.flatMap((check) => check(readFact) ?? []);
}

/** Finds a value in the answer to INFO. */
type ReadFact = (name: string) => string | undefined;

const CHECKS: readonly ((readFact: ReadFact) => string | undefined)[] = [
  checkVersion,
  checkEviction,
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
  checkAppendOnly,
];

function checkVersion(readFact: ReadFact): string | undefined {
  const version = readFact('redis_version');
  if (version === undefined) return 'could not check the version of Redis: use 6.2 or later';
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major < 6 || (major === 6 && minor < 2)
    ? `Redis ${version} is too old: upgrade to 6.2 or later`
    : undefined;
}

function checkEviction(readFact: ReadFact): string | undefined {
  const policy = readFact('maxmemory_policy');
  if (policy === undefined)
    return 'could not check the eviction policy of Redis: set maxmemory-policy noeviction';
  return policy === 'noeviction'
    ? undefined
    : `Redis may evict jobs (maxmemory-policy ${policy}): set maxmemory-policy noeviction`;
}

function checkAppendOnly(readFact: ReadFact): string | undefined {
  const enabled = readFact('aof_enabled');
  if (enabled === undefined)
    return 'could not check whether Redis keeps an append-only file: set appendonly yes';
  return enabled === '1'
    ? undefined
    : 'Redis forgets jobs when it restarts (no append-only file): set appendonly yes';
}
