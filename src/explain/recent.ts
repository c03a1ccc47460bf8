import { keyOf } from '../kube/resources.ts';
import { decodeChanges, encodeChanges } from '../queue/status.ts';
import type { FinishedJob } from '../queue/work-queue.ts';
import { driverKey, type RedisPlace } from '../redis/key-prefix.ts';
import { listIn } from '../runtime/json.ts';

/* What a driver's jobs have finished lately, for people: a list in Redis, the latest first. The
 * leader writes it when it removes the jobs. */

/** Kept of a driver. */
export const MOST_RECENT = 1_000;
/** Of these, those that say how long claims take. */
const MOST_READ = 500;

/** Writes finished jobs. */
export async function writeRecent(place: RedisPlace, jobs: readonly FinishedJob[]): Promise<void> {
  if (jobs.length === 0) return;
  const key = driverKey(place, 'recent');
  const texts = jobs.map(({ key: { kind, namespace, name, uid }, ...job }) => {
    const { note, changes, addedMs, begunMs, finishedMs, runs } = job;
    const times = [addedMs, finishedMs, runs, begunMs];
    return JSON.stringify([kind, namespace, name, uid, note, ...times, encodeChanges(changes)]);
  });
  await Promise.all([place.redis.lpush(key, ...texts), place.redis.ltrim(key, 0, MOST_RECENT - 1)]);
}

/** A job that was finished. */
export interface Recent extends Pick<
  FinishedJob,
  'note' | 'changes' | 'addedMs' | 'finishedMs' | 'runs'
> {
  readonly kind: string;
  /** "namespace/claim", or the volume's name. */
  readonly object: string;
  readonly uid: string;
  /** Unix ms: when the last run began; undefined where an earlier version wrote it. */
  readonly begunMs: number | undefined;
}

/** The last jobs of a driver that were finished. Rejects while Redis can't be reached.
 * @param most  how many at most */
export async function readRecent(place: RedisPlace, most = MOST_READ): Promise<readonly Recent[]> {
  const texts = await place.redis.lrange(driverKey(place, 'recent'), 0, most - 1);
  return texts.flatMap(parseRecent);
}

/** The last job of an object that was finished; undefined: it is none of those that are kept. */
export async function findRecent(place: RedisPlace, object: string): Promise<Recent | undefined> {
  const recent = await readRecent(place, MOST_RECENT);
  return recent.find((each) => each.object === object);
}

function parseRecent(text: string): readonly Recent[] {
  const [kind, namespace, name, uid, note, addedMs, finishedMs, runs, begunMs, changes] =
    listIn(text);
  if (typeof kind !== 'string' || typeof namespace !== 'string' || typeof name !== 'string')
    return [];
  if (typeof uid !== 'string' || typeof note !== 'string' || typeof runs !== 'number') return [];
  if (typeof addedMs !== 'number' || typeof finishedMs !== 'number') return [];
  const times = { addedMs, finishedMs, begunMs: typeof begunMs === 'number' ? begunMs : undefined };
  const object = keyOf({ namespace, name });
  return [{ kind, object, uid, note, runs, ...times, changes: decodeChanges(changes) }];
}
