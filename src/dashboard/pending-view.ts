import { type Explanation, nextRunMs } from '../explain/explain.ts';
import { readPendingEntry } from '../explain/pending-index.ts';
import { type DriverReport, explainOne, reportDriver } from '../explain/report.ts';
import { listDrivers, readJob } from '../queue/queues.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import type { RedisLink } from '../redis/connection.ts';

/** Everything that is not done, the oldest first. */
export interface Overview {
  readonly atMs: number;
  readonly drivers: readonly DriverReport[];
  readonly claims: readonly Explanation[];
  readonly volumes: readonly Explanation[];
}

const CACHE_MS = 500;

interface PendingViewOptions {
  readonly link: RedisLink;
  readonly prefix: string;
}

/** Reads what is pending. Methods reject while Redis can't be reached. */
export class PendingView {
  readonly #options: PendingViewOptions;
  #overview: Promise<Overview> | undefined;

  constructor(options: PendingViewOptions) {
    this.#options = options;
  }

  /** Reads the overview. Concurrent callers share one read, which may be half a second old. */
  overview(): Promise<Overview> {
    this.#overview ??= this.#read(Date.now()).finally(() => {
      setTimeout(() => this.forget(), CACHE_MS).unref();
    });
    return this.#overview;
  }

  /** Adds to each object when its job runs next. */
  withJobs(shown: readonly Explanation[]): Promise<readonly Explanation[]> {
    const addJob = async (each: Explanation): Promise<Explanation> => {
      const job = await readJob(this.#placeOf(each.driver), each);
      return { ...each, nextMs: nextRunMs(each.status, job) };
    };
    return Promise.all(shown.map(addJob));
  }

  /** Explains one object as of now; undefined if it is not pending. */
  async explain(object: string): Promise<Explanation | undefined> {
    const { claims, volumes } = await this.overview();
    const found = [...claims, ...volumes].find((each) => each.object === object);
    if (found === undefined) return undefined;
    const place = this.#placeOf(found.driver);
    const entry = await readPendingEntry(place, found.uid);
    return entry && explainOne(place, entry, Date.now());
  }

  /** Forgets the overview, because somebody has changed something. */
  forget(): void {
    this.#overview = undefined;
  }

  async #read(nowMs: number): Promise<Overview> {
    const { link, prefix } = this.#options;
    const drivers: DriverReport[] = [];
    // One by one, because each may be large.
    for (const driver of await listDrivers(link.redis, prefix))
      drivers.push(await reportDriver(this.#placeOf(driver)));
    const pending = onceEach(drivers.flatMap((each) => each.pending));
    const claims = pending.filter(({ kind }) => kind === 'claim');
    const volumes = pending.filter(({ kind }) => kind === 'volume');
    return { atMs: nowMs, drivers, claims, volumes };
  }

  #placeOf(driver: string): RedisPlace {
    const { link, prefix } = this.#options;
    return { redis: link.redis, prefix, driver };
  }
}

/** Removes duplicates: several drivers list a claim whose class does not exist. */
function onceEach(pending: readonly Explanation[]): readonly Explanation[] {
  const byUid = new Map<string, Explanation>();
  for (const each of pending)
    // A driver that is gone may have listed the claim before the class existed.
    if ((byUid.get(each.uid)?.cause.name ?? 'ClassNotFound') === 'ClassNotFound')
      byUid.set(each.uid, each);
  return [...byUid.values()].sort((a, b) => (a.sinceMs ?? 0) - (b.sinceMs ?? 0));
}
