import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import { objectId, type DependencyIndex } from '../../queue/dependency-index.ts';
import {
  MAX_VIEW_AGE_MS,
  type SharedHandles,
  VIEW_CONDITION,
} from '../../records/shared-handles.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Logger } from '../../runtime/log.ts';
import { PollLoop } from '../../runtime/poll-loop.ts';
import { identityOf } from '../../volumes/handles.ts';
import { transformVolume } from '../objects/transforms.ts';
import { HandleTable, SharedNames } from './handle-table.ts';
import { type Listing, type PacedLists, Unwanted } from './paced-lists.ts';

/** A driver whose workers ask which handles are shared. */
export interface ScannedDriver {
  readonly name: string;
  readonly store: Pick<SharedHandles, 'beginScan' | 'endScan' | 'publish' | 'withdraw'>;
  readonly waits: Pick<DependencyIndex, 'promote'>;
  /** Whether Redis belongs to our cluster; otherwise nothing is written. */
  readonly isRedisOurs: () => boolean;
}

export interface HandleScannerOptions {
  readonly lists: Pick<PacedLists, 'pages'>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly periodMs?: number;
  /** A scan ends that the API server has given no page for this long. */
  readonly stalledMs?: number;
}

/** A driver for which a scan has begun. */
interface Asked {
  readonly driver: ScannedDriver;
  /** Redis' time before the scan. */
  readonly begunMs: number;
}

const PERIOD_MS = 1_000;
const RENEW_MS = 3_000;
const STALLED_MS = 10_000;
/** Pause after a scan that stalled: long enough for another ingest to scan instead. */
const STALLED_PAUSE_MS = 15_000;
/** When keys that wait for the view are promoted after it was published: at once, and later those
 * whose run was still ending. */
const PROMOTE_MS = [0, 200, 1_000] as const;

/** Tells the workers which handles several PVs name, without a watch of PVs: when one of them asks,
 * because it is about to send DeleteVolume and finds nothing published, this lists all PVs and
 * publishes what it found. One scan serves all who asked before it began, of all drivers. What is
 * published is as old as the begin of its list, and expires 5 s after the list's end. The next scan
 * begins after a pause as long as this one took, and not before somebody asks again.
 *
 * Any ingest may scan, whether it leads or not; one does at a time. One that gets no page from the
 * API server gives up, so that another may scan, and so that no view becomes old before it is
 * published. */
export class HandleScanner {
  readonly #options: HandleScannerOptions;
  readonly #id = randomUUID();
  readonly #drivers = new Set<ScannedDriver>();
  readonly #stopped = new AbortController();
  readonly #loop: PollLoop;
  #version = 0;
  /** Of the scan under way, and of the last one until what it published has expired. */
  #table: HandleTable | undefined;
  /** What the last scan published; undefined during a scan. */
  #published: SharedNames | undefined;
  #expiresMs = 0;

  constructor(options: HandleScannerOptions) {
    const { clock, log } = options;
    this.#options = options;
    this.#loop = new PollLoop({
      step: () => this.#step(),
      onError: (error) => log.debug({ err: error }, 'a scan for shared handles failed; once more'),
      periodMs: options.periodMs ?? PERIOD_MS,
      isAligned: options.periodMs === undefined,
      clock,
    });
  }

  /** Begins to serve a driver.
   * @returns a function that ends that */
  serve(driver: ScannedDriver): () => void {
    this.#drivers.add(driver);
    return () => this.#drivers.delete(driver);
  }

  /** To be called with each PV that was read because a hint named it: it may have the handle of
   * another one since the last scan began. Then what was published is withdrawn at once. */
  observe(volume: Volume): void {
    const hasOther = this.#table?.add(volume) === true;
    if (!hasOther || this.#published?.has(volume) !== false) return;
    for (const { name, store, isRedisOurs } of this.#drivers)
      if (isRedisOurs() && name === identityOf(volume)?.driver)
        store
          .withdraw(this.#id)
          .catch((error: unknown) =>
            this.#options.log.debug({ err: error }, 'could not withdraw the shared handles'),
          );
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#loop.stop();
  }

  /** @returns the pause before the next step, if it is not the usual one */
  async #step(): Promise<number | void> {
    const { clock } = this.#options;
    if (clock.nowMs() >= this.#expiresMs) this.#table = undefined;
    const asked = await this.#begin();
    if (asked.length === 0) return;
    const renewal = setInterval(() => void this.#begin().catch(() => undefined), RENEW_MS);
    const startedMs = clock.nowMs();
    try {
      this.#published = undefined;
      const shared = await this.#scan();
      this.#published = shared;
      const tookMs = clock.nowMs() - startedMs;
      this.#expiresMs = clock.nowMs() + MAX_VIEW_AGE_MS;
      for (const each of asked) await this.#publish(each, shared, tookMs);
      return Math.max(PERIOD_MS, tookMs);
    } catch (error) {
      if (!(error instanceof Unwanted)) throw error;
      return STALLED_PAUSE_MS;
    } finally {
      clearInterval(renewal);
    }
  }

  async #begin(): Promise<readonly Asked[]> {
    const asked: Asked[] = [];
    for (const driver of this.#drivers) {
      if (!driver.isRedisOurs()) continue;
      const answer = await driver.store.beginScan(this.#id);
      if (answer.kind === 'scan') asked.push({ driver, begunMs: answer.nowMs });
    }
    return asked;
  }

  async #scan(): Promise<SharedNames> {
    const table = new HandleTable();
    this.#table = table;
    for await (const page of this.#pages()) for (const volume of page) table.add(volume);
    const names = new SharedNames();
    if (!table.hasShared) return names;
    for await (const page of this.#pages())
      for (const volume of page) if (table.isShared(volume)) names.add(volume);
    return names;
  }

  /** @throws Unwanted when no page has come for long, or this is stopped */
  async *#pages(): AsyncGenerator<readonly Volume[]> {
    const { lists, stalledMs = STALLED_MS } = this.#options;
    let pageMs = performance.now();
    const listing: Listing<Volume> = {
      resource: volumes,
      transform: transformVolume,
      isWanted: () => !this.#stopped.signal.aborted && performance.now() - pageMs < stalledMs,
    };
    for await (const page of lists.pages(listing)) {
      yield page;
      pageMs = performance.now();
    }
  }

  async #publish({ driver, begunMs }: Asked, shared: SharedNames, tookMs: number): Promise<void> {
    this.#version += 1;
    const { kind } = await driver.store.publish({
      publisher: this.#id,
      version: this.#version,
      handles: shared.of(driver.name),
      asOfMs: begunMs,
      maxAgeMs: tookMs + MAX_VIEW_AGE_MS,
    });
    // `outdated`: this process was frozen. The next step scans again, since the scan has not ended.
    if (kind === 'outdated') return;
    await driver.store.endScan(this.#id, begunMs);
    void this.#promoteWaiting(driver);
  }

  async #promoteWaiting({ waits }: ScannedDriver): Promise<void> {
    const { clock, log } = this.#options;
    const group = { object: objectId(VIEW_CONDITION), seen: VIEW_CONDITION.seen };
    try {
      for (const afterMs of PROMOTE_MS) {
        await clock.sleep(afterMs, this.#stopped.signal);
        await waits.promote(group);
      }
    } catch (error) {
      log.debug({ err: error }, 'could not promote the deletions that waited for the scan');
    }
  }
}
