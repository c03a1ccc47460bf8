import type { Redis } from 'ioredis';
import { messageOf } from '../runtime/error-message.ts';

/** Settings of Redis that risk volumes, one line each with its fix; empty when all is well. Asks
 * only INFO, because managed Redis often forbids CONFIG. */
export async function checkSettings(redis: Pick<Redis, 'info'>): Promise<string[]> {
  let text: string;
  try {
    text = await redis.info();
  } catch (error) {
    const why = messageOf(error);
    return [
      `could not check Redis' settings (${why}): allow INFO, ` +
        'or check AOF, noeviction and version by hand',
    ];
  }
  const facts = new Map(
    Array.from(text.matchAll(/^([^:\r\n]+):(.*?)\r?$/gm), ([, name = '', value = '']) => [
      name,
      value,
    ]),
  );
  return CHECKS.flatMap((check) => check(facts) ?? []);
}

type Facts = ReadonlyMap<string, string>;

const CHECKS: readonly ((facts: Facts) => string | undefined)[] = [
  checkVersion,
  checkEviction,
  (facts) =>
    facts.get('role') === 'slave'
      ? 'Redis is a read-only replica: name the master in --redis-url, ' +
        'or the Sentinels, which know it'
      : undefined,
  (facts) => {
    const limit = Number(facts.get('maxmemory') ?? 0);
    return limit > 0 && Number(facts.get('used_memory') ?? 0) > limit
      ? 'Redis is out of memory and takes no writes: raise maxmemory'
      : undefined;
  },
  (facts) =>
    facts.get('aof_last_write_status') === 'err'
      ? 'Redis could not write its append-only file: look at its disk'
      : undefined,
  checkAppendOnly,
];

function checkVersion(facts: Facts): string | undefined {
  const version = facts.get('redis_version');
  if (version === undefined) return 'could not check the version of Redis: use 6.2 or later';
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major < 6 || (major === 6 && minor < 2)
    ? `Redis ${version} is too old: upgrade to 6.2 or later`
    : undefined;
}

function checkEviction(facts: Facts): string | undefined {
  const policy = facts.get('maxmemory_policy');
  if (policy === undefined)
    return 'could not check the eviction policy of Redis: set maxmemory-policy noeviction';
  return policy === 'noeviction'
    ? undefined
    : `Redis may evict jobs (maxmemory-policy ${policy}): set maxmemory-policy noeviction`;
}

function checkAppendOnly(facts: Facts): string | undefined {
  const enabled = facts.get('aof_enabled');
  if (enabled === undefined)
    return 'could not check whether Redis keeps an append-only file: set appendonly yes';
  return enabled === '1'
    ? undefined
    : 'Redis forgets jobs when it restarts (no append-only file): set appendonly yes';
}
