import type { Counter, Registry } from 'prom-client';
import type { DependencyIndex, WaitGroup } from '../../queue/dependency-index.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Logger } from '../../runtime/log.ts';
import { metricsIn } from '../../runtime/metrics.ts';
import { PollLoop } from '../../runtime/poll-loop.ts';

export interface DependencyWatcherOptions {
  readonly waits: Pick<DependencyIndex, 'since' | 'promote'>;
  /** The object's current version; '' = it does not exist. Undefined: no watch covers it, or its
   * watch has not synced. */
  readonly versionOf: (object: string) => string | undefined;
  /** Called after each poll with all objects that keys wait for. */
  readonly onWaiting?: (objects: ReadonlySet<string>) => void;
  /** Called right before each promotion. */
  readonly isLeading: () => boolean;
  readonly driver: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Registry;
  /** Time between two polls of the wait list. */
  readonly periodMs?: number;
}

/** The last promotion of a group, that is, of the keys that saw the same version of an object. */
interface Promotion {
  /** The object's version when the keys were promoted. */
  readonly version: string;
  /** How many promotions before this one had no effect: the keys ran, and parked again on the
   * same version of the object. */
  readonly withoutEffect: number;
  /** While the object stays at `version`, the group is not promoted again before this time. */
  readonly notBeforeMs: number;
}

/** Pauses between promotions of a group that have no effect, as while a worker's cache or this
 * process' is out of date. Each run may cost a call to the driver. */
const REPEAT_START_MS = 1_000;
const REPEAT_MAX_MS = 300_000;
const PERIOD_MS = 1_000;
/** Polls between full rescans of the wait list. A rescan drops groups that no longer exist and
 * makes up for a lost answer. */
const POLLS_PER_RESCAN = 60;

/** Promotes parked keys whose object changed. Compares the versions that the keys saw with those in
 * the caches: at each change of an object and, each second, for the keys that parked since. So it
 * finds a change that came before the key parked, and one that came before this ingest led. */
export class DependencyWatcher {
  readonly #options: DependencyWatcherOptions;
  readonly #promotedKeys: Counter<'driver'>;
  readonly #loop: PollLoop;
  /** By object: the versions that keys saw when they parked. */
  readonly #seenVersions = new Map<string, Set<string>>();
  /** By group, "object@seen version". */
  readonly #promotions = new Map<string, Promotion>();
  /** Objects to compare in the next step. */
  readonly #due = new Set<string>();
  /** How far the wait list was read; undefined: not at all, or again from the start. */
  #position: number | undefined;
  #polls = 0;

  constructor(options: DependencyWatcherOptions) {
    const { driver, metrics, clock, log } = options;
    this.#options = options;
    this.#promotedKeys = metricsIn(metrics).counter(
      'sutler_keys_woken_total',
      'Parked keys that were run because their object changed.',
      ['driver'],
    );
    this.#promotedKeys.inc({ driver }, 0);
    this.#loop = new PollLoop({
      step: () => this.#step(),
      onError: (error) =>
        log.debug({ err: error }, 'could not read or promote parked keys; trying again'),
      periodMs: options.periodMs ?? PERIOD_MS,
      isAligned: true,
      clock,
    });
  }

  /** To be called when an object was added, modified or deleted. */
  changed(object: string): void {
    if (!this.#seenVersions.has(object)) return;
    this.#due.add(object);
    this.#loop.runNow();
  }

  /** Reads at once what keys wait for, instead of in the next second. */
  readNow(): void {
    this.#loop.runNow();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  async #step(): Promise<void> {
    if (!this.#options.isLeading()) return this.#reset();
    await this.#poll();
    const objects = [...this.#due];
    this.#due.clear();
    for (const object of objects) await this.#compare(object);
  }

  /** Called while another ingest leads: ends all watches, and makes the next poll a rescan. */
  #reset(): void {
    this.#seenVersions.clear();
    this.#due.clear();
    this.#polls = 0;
    this.#options.onWaiting?.(new Set());
  }

  /** Reads the groups that were added to the wait list since the last poll. */
  async #poll(): Promise<void> {
    const { waits, onWaiting } = this.#options;
    if (this.#polls % POLLS_PER_RESCAN === 0) this.#beginRescan();
    const { position, waiting } = await waits.since(this.#position);
    this.#position = position;
    this.#polls += 1;
    for (const { object, seen } of waiting) {
      const versions = this.#seenVersions.get(object);
      if (versions === undefined) this.#seenVersions.set(object, new Set([seen]));
      else versions.add(seen);
      this.#due.add(object);
    }
    onWaiting?.(new Set(this.#seenVersions.keys()));
  }

  #beginRescan(): void {
    this.#position = undefined;
    this.#seenVersions.clear();
    const nowMs = this.#options.clock.nowMs();
    for (const [group, { notBeforeMs }] of this.#promotions)
      if (notBeforeMs + REPEAT_MAX_MS < nowMs) this.#promotions.delete(group);
  }

  async #compare(object: string): Promise<void> {
    const { versionOf, isLeading } = this.#options;
    const versions = this.#seenVersions.get(object);
    if (versions === undefined) return;
    const current = versionOf(object);
    // Its watch has not synced yet: compare again in the next step.
    if (current === undefined) this.#due.add(object);
    else
      for (const seen of versions)
        if (seen !== current && isLeading()) await this.#promote({ object, seen }, current);
  }

  /** Promotes the keys of a group, unless an earlier promotion had no effect and its pause is not
   * over. */
  async #promote({ object, seen }: WaitGroup, version: string): Promise<void> {
    const { waits, clock, driver, log } = this.#options;
    const group = `${object}@${seen}`;
    const last = this.#promotions.get(group);
    const isRepeat = last?.version === version;
    const nowMs = clock.nowMs();
    if (isRepeat && nowMs < last.notBeforeMs) {
      this.#due.add(object);
      return;
    }
    const { promoted, running } = await waits.promote({ object, seen });
    if (promoted > 0) {
      const withoutEffect = isRepeat ? last.withoutEffect + 1 : 0;
      const pauseMs = Math.min(REPEAT_MAX_MS, REPEAT_START_MS * 2 ** withoutEffect);
      this.#promotions.set(group, { version, withoutEffect, notBeforeMs: nowMs + pauseMs });
      this.#promotedKeys.inc({ driver }, promoted);
      log.info({ object, keys: promoted }, 'an object changed: promoted the keys that wait for it');
    }
    // A running key may have read the object before the change and be about to park.
    if (running > 0) this.#due.add(object);
    else this.#forget(object, seen);
  }

  #forget(object: string, seen: string): void {
    const versions = this.#seenVersions.get(object);
    versions?.delete(seen);
    if (versions?.size === 0) this.#seenVersions.delete(object);
  }
}
