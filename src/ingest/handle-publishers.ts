import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import type { Volume } from '../kube/objects.ts';
import { volumes } from '../kube/resources.ts';
import { MAX_VIEW_AGE_MS, type SharedHandles } from '../hints/shared-handles.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import { identityOf } from '../volumes/handles.ts';
import { type PacedLists, Unwanted } from './notices/paced-lists.ts';
import type { Informers } from './objects/informers.ts';
import { transformVolume } from './objects/transforms.ts';
import { VolumeIndex } from './objects/volume-index.ts';

/* Two ways to tell the workers which handles several PVs name, so that a worker can look right
 * before it sends DeleteVolume (docs/decisions/0006): all the time, by a watch of PVs, or when a
 * worker asks, by a list of them. Any ingest may do that, whether it leads or not. */

export interface HandlePublisherOptions {
  /** `isFollowingVolumes`: whether changes of PVs arrive at once. */
  readonly informers: Pick<Informers, 'isFollowingVolumes' | 'sharedHandles'>;
  readonly store: Pick<SharedHandles, 'publish'>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The view expires after 5 s and is as old as the last step, so a step may be 2 s late. */
const PUBLISH_PERIOD_MS = 1_500;
/** Pause before the first view: what happened before, as while this process was frozen, has arrived
 * by then. */
const FIRST_VIEW_MS = 200;

/** Publishes what a watch shows: at once when that changes, and every 1.5 s that it has not. The
 * first ingest does, until it falls silent. */
export class HandlePublisher {
  readonly #options: HandlePublisherOptions;
  readonly #publisher = randomUUID();
  readonly #loop: PollLoop;
  /** Grows with every change of what is published. */
  #version = 1;
  /** The version that Redis has. */
  #publishedVersion = 0;
  /** The last time, by Redis' clock, at which PVs were followed; 0 = not since they are again. */
  #asOfMs = 0;

  constructor(options: HandlePublisherOptions) {
    const { clock, log } = options;
    this.#options = options;
    this.#loop = new PollLoop({
      step: () => this.#step(),
      onError: (error) =>
        log.debug({ err: error }, 'could not publish the shared handles; trying again'),
      periodMs: PUBLISH_PERIOD_MS,
      isAligned: true,
      clock,
    });
  }

  /** To be called when it changed which PVs share a handle. */
  changed(): void {
    this.#version += 1;
    this.#loop.runNow();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** @returns the pause before the next step, if it is not the usual one */
  async #step(): Promise<number | void> {
    const { informers, store } = this.#options;
    if (!informers.isFollowingVolumes) {
      this.#asOfMs = 0;
      return;
    }
    const version = this.#version;
    const handles = version === this.#publishedVersion ? undefined : informers.sharedHandles();
    const view = { publisher: this.#publisher, version, handles, asOfMs: this.#asOfMs };
    const { kind, nowMs } = await store.publish(view);
    this.#asOfMs = nowMs;
    if (kind === 'outdated') return FIRST_VIEW_MS;
    if (kind === 'taken') return;
    this.#publishedVersion = kind === 'published' ? version : 0;
    if (kind === 'unknown') return 0;
  }
}

/** A driver whose workers ask which handles are shared. */
export interface ScannedDriver {
  readonly name: string;
  readonly store: Pick<SharedHandles, 'beginScan' | 'publish' | 'withdraw'>;
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

const SCAN_PERIOD_MS = 1_000;
const RENEW_MS = 3_000;
const STALLED_MS = 10_000;
/** Pause after a scan that stalled: long enough for another ingest to scan instead. */
const STALLED_PAUSE_MS = 15_000;

/** Publishes when a worker asks, because it is about to send DeleteVolume and finds nothing
 * published: lists all PVs for that. One scan serves all who asked before it began, of all drivers.
 * What is published is as old as the begin of its list, and expires 5 s after the list's end. The
 * next scan begins after a pause as long as this one took, and not before somebody asks again.
 *
 * One ingest scans at a time. One that gets no page from the API server gives up, so that another
 * may scan, and so that no view becomes old before it is published. */
export class HandleScanner {
  readonly #options: HandleScannerOptions;
  readonly #id = randomUUID();
  readonly #drivers = new Set<ScannedDriver>();
  readonly #stopped = new AbortController();
  readonly #loop: PollLoop;
  #version = 0;
  /** Of the scan under way, and of the last one until what it published has expired. */
  #index: VolumeIndex | undefined;
  #expiresMs = 0;
  #isPublished = false;

  constructor(options: HandleScannerOptions) {
    const { clock, log } = options;
    this.#options = options;
    this.#loop = new PollLoop({
      step: () => this.#step(),
      onError: (error) => log.debug({ err: error }, 'a scan for shared handles failed; once more'),
      periodMs: options.periodMs ?? SCAN_PERIOD_MS,
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

  /** To be called with each PV that was read because a notice named it: it may have the handle of
   * another one since the last scan began. Then what was published is withdrawn at once. */
  observe(volume: Volume): void {
    if (this.#index?.put(volume) !== true || !this.#isPublished) return;
    for (const { name, store } of this.#drivers)
      if (name === identityOf(volume)?.driver)
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
    if (clock.nowMs() >= this.#expiresMs) this.#index = undefined;
    const asked = await this.#begin();
    if (asked.length === 0) return;
    const renewal = setInterval(() => void this.#begin().catch(() => undefined), RENEW_MS);
    const startedMs = clock.nowMs();
    try {
      const index = await this.#scan();
      const tookMs = clock.nowMs() - startedMs;
      this.#expiresMs = clock.nowMs() + MAX_VIEW_AGE_MS;
      this.#isPublished = true;
      for (const each of asked) await this.#publish(each, index, tookMs);
      return Math.max(SCAN_PERIOD_MS, tookMs);
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
      const answer = await driver.store.beginScan(this.#id);
      if (answer.kind === 'scan') asked.push({ driver, begunMs: answer.nowMs });
    }
    return asked;
  }

  /** @throws Unwanted when no page has come for long, or this is stopped */
  async #scan(): Promise<VolumeIndex> {
    const { lists, stalledMs = STALLED_MS } = this.#options;
    const index = new VolumeIndex();
    this.#isPublished = false;
    this.#index = index;
    let pageMs = performance.now();
    const pages = lists.pages<Volume>({
      resource: volumes,
      transform: transformVolume,
      isWanted: () => !this.#stopped.signal.aborted && performance.now() - pageMs < stalledMs,
    });
    for await (const page of pages) {
      for (const volume of page) index.put(volume);
      pageMs = performance.now();
    }
    return index;
  }

  async #publish({ driver, begunMs }: Asked, index: VolumeIndex, tookMs: number): Promise<void> {
    this.#version += 1;
    await driver.store.publish({
      publisher: this.#id,
      version: this.#version,
      handles: index.sharedHandles(),
      asOfMs: begunMs,
      maxAgeMs: tookMs + MAX_VIEW_AGE_MS,
    });
  }
}
