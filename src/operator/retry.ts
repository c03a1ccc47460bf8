import { reportDriver } from '../explain/report.ts';
import type { Explanation } from '../explain/explain.ts';
import { retryNow, type Retried } from '../queue/queues.ts';
import { UsageError } from '../runtime/flags.ts';
import { counted } from '../runtime/printable.ts';
import { commandMain, type Means, Refusal, type Result } from './command.ts';
import { retry } from './flags.ts';
import { servedDrivers } from './installation.ts';

/** Retries claims and deletions at once. */
export const main = commandMain(retry, run);

async function run({ context, openRedis }: Means<typeof retry.flags>): Promise<Result> {
  const { flags, words } = context;
  const wanted = wantedOf(flags, words);
  const redis = await openRedis();
  const { redisPrefix: prefix, driverName } = flags;
  const tried: Tried[] = [];
  for (const driver of await servedDrivers(redis, prefix, driverName)) {
    const place = { redis, prefix, driver };
    const { pending } = await reportDriver(place);
    // A claim whose class does not exist is pending for several drivers.
    const isNew = ({ uid }: Explanation): boolean => tried.every((each) => each.uid !== uid);
    const found = pending.filter((each) => wanted(each) && isNew(each));
    const results = await retryNow(place, found);
    tried.push(...found.map((each) => ({ ...each, result: results.get(each.uid) ?? 'waiting' })));
  }
  const missing = words.filter((word) => tried.every(({ object }) => object !== word));
  if (tried.length === 0 && words.length === 0)
    throw new Refusal('no such claim or volume is pending here: see sutler status');
  const isLeft = ({ result }: Tried): boolean => words.length > 0 && result === 'waiting';
  const isDone = missing.length === 0 && !tried.some(isLeft);
  return {
    status: isDone ? 0 : 1,
    lines: [...describeTried(tried), ...missing.map(describeMissing)],
    json: {
      tried: tried.map(({ kind, object, driver, result }) => ({ kind, object, driver, result })),
      missing,
    },
  };
}

type Tried = Explanation & { readonly result: Retried };

/** Selects the objects to retry.
 * @throws UsageError for nothing, or for objects beside a filter */
function wantedOf(
  flags: { readonly class: string; readonly cause: string; readonly all: boolean },
  words: readonly string[],
): (each: Explanation) => boolean {
  const hasFilter = flags.class !== '' || flags.cause !== '' || flags.all;
  if (hasFilter === words.length > 0)
    throw new UsageError(
      'name what to retry: NAMESPACE/CLAIM, a PersistentVolume, or one of --class, --cause and ' +
        '--all',
    );
  if (!hasFilter) return ({ object }) => words.includes(object);
  return ({ className, cause }) =>
    (flags.class === '' || className === flags.class) &&
    (flags.cause === '' || cause.name === flags.cause);
}

/** The most objects that get a line each. */
const SHOWN = 20;

function describeTried(tried: readonly Tried[]): readonly string[] {
  const shown = tried.slice(0, SHOWN).map(describeOne);
  const more = tried.length - shown.length;
  const count = tried.filter(({ result }) => result !== 'waiting').length;
  return more > 0
    ? [...shown, `and ${more} more: ${counted(count, 'object')} retried in all`]
    : shown;
}

function describeOne({ object, cause, result }: Tried): string {
  if (result === 'promoted') return `${object}: tried now`;
  if (result === 'running') return `${object}: a worker is working on it already`;
  return `${object}: it has no delayed job: ${cause.sentence}; ${cause.actor}: ${cause.step}`;
}

function describeMissing(word: string): string {
  const look = word.includes('/') ? `sutler explain ${word}` : `kubectl describe pv ${word}`;
  return `${word}: not pending here: it is done, gone, or another provisioner's (${look})`;
}
