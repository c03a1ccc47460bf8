import type { FinishedJob } from '../queue/work-queue.ts';
import { driverKey, type RedisPlace } from '../redis/key-prefix.ts';
import { listIn } from '../runtime/json.ts';

/* What a driver's jobs have finished lately, for people: a list in Redis, the latest first. The
 * leader writes it when it removes the jobs. */

/** Kept of a driver. */
const MOST = 1_000;
/** Read of it at most. */
const MOST_READ = 500;

/** Writes finished jobs. */
export async function writeRecent(place: RedisPlace, jobs: readonly FinishedJob[]): Promise<void> {
  if (jobs.length === 0) return;
  const key = driverKey(place, 'recent');
  const texts = jobs.map(({ key: { kind, namespace, name, uid }, note, ...times }) =>
    JSON.stringify([kind, namespace, name, uid, note, times.addedMs, times.finishedMs, times.runs]),
  );
  await Promise.all([place.redis.lpush(key, ...texts), place.redis.ltrim(key, 0, MOST - 1)]);
}

/** A job that was finished. */
export interface Recent {
  readonly kind: string;
  readonly note: string;
  /** Unix ms. */
  readonly addedMs: number;
  readonly finishedMs: number;
  readonly runs: number;
}

/** The last jobs of a driver that were finished. Rejects while Redis can't be reached. */
export async function readRecent(place: RedisPlace): Promise<readonly Recent[]> {
  const texts = await place.redis.lrange(driverKey(place, 'recent'), 0, MOST_READ - 1);
  return texts.flatMap((text) => {
    const [kind, , , , note, addedMs, finishedMs, runs] = listIn(text);
    return typeof kind === 'string' &&
      typeof note === 'string' &&
      typeof addedMs === 'number' &&
      typeof finishedMs === 'number' &&
      typeof runs === 'number'
      ? [{ kind, note, addedMs, finishedMs, runs }]
      : [];
  });
}
