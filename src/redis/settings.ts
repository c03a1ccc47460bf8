import type { Redis } from 'ioredis';
import { messageOf } from '../runtime/error-message.ts';
import { isRefusal, NO_CLUSTER } from './error-text.ts';

/** Lists what is wrong with Redis' settings, one line each with its fix. Asks only INFO, because
 * managed services often forbid CONFIG. A setting that INFO does not show counts as right.
 * @throws what ioredis throws, unless Redis refused */
export async function checkSettings(redis: Pick<Redis, 'info'>): Promise<readonly string[]> {
  let text: string;
  try {
    text = await redis.info();
  } catch (error) {
    if (!isRefusal(error)) throw error;
    return [`could not check Redis' settings (${messageOf(error)}): allow INFO`];
  }
  const read = (name: string) => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(text)?.[1];
  const version = read('redis_version') ?? '7';
  const policy = read('maxmemory_policy') ?? 'noeviction';
  const wrong: string[] = [];
  if (Number.parseInt(version, 10) < 7)
    wrong.push(`Redis ${version} is too old: upgrade to 7.0 or later`);
  if (policy !== 'noeviction')
    wrong.push(
      `Redis may evict jobs (maxmemory-policy ${policy}): set maxmemory-policy noeviction`,
    );
  if (read('cluster_enabled') === '1' || read('redis_mode') === 'cluster')
    wrong.push(`Redis runs in cluster mode: ${NO_CLUSTER}`);
  return wrong;
}
