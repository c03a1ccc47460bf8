import type { Counter, Registry } from 'prom-client';
import type { DependencyIndex, WaitGroup } from '../../queue/dependency-index.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Logger } from '../../runtime/log.ts';
import { metricsIn } from '../../runtime/metrics.ts';
import { PollLoop } from '../../runtime/poll-loop.ts';

/** Knows the versions of some kinds of objects. */
export interface VersionSource {
  /** The version of an object; '' = it does not exist. Undefined: it is of another kind, or its
   * version is not known now. */
  versionOf(object: string): string | undefined;
  /** Called each second with all objects that keys wait for. */
  follow?(objects: ReadonlySet<string>): void;
}

export interface DependencyWatcherOptions {
  readonly index: Pick<DependencyIndex, 'read' | 'promote'>;
  readonly sources: readonly VersionSource[];
  /** Called right before each promotion. */
  readonly isLeading: () => boolean;
  readonly driver: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Registry;
  /** Time between two reads of the index. */
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
/** Reads between those that are made although the index seems unchanged, to make up for a Redis
 * that lost some of it. */
const READS_PER_RESCAN = 60;

/** Promotes parked keys whose object changed. Compares the versions that the keys saw with those of
 * the objects now: at each change of an object and, each second, where a key has parked since. So
 * it finds a change that came before the key parked, and one that came before this ingest led. */
export class DependencyWatcher {
  readonly #options: DependencyWatcherOptions;
  readonly #promotedKeys: Counter<'driver'>;
  readonly #loop: PollLoop;
  /** By object: the versions that keys saw when they parked. */
  #waiting: ReadonlyMap<string, ReadonlySet<string>> = new Map();
  /** By group, "object@seen version". */
  readonly #promotions = new Map<string, Promotion>();
  /** Objects to compare in the next step. */
  #due = new Set<string>();
  /** The version of the index that was read; undefined: none. */
  #version: number | undefined;
  #reads = 0;

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
    if (!this.#waiting.has(object)) return;
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
    const { sources, isLeading } = this.#options;
    if (isLeading()) await this.#read();
    else {
      // Another ingest leads: all watches end, and the next read is complete.
      this.#waiting = new Map();
      this.#due.clear();
      this.#version = undefined;
    }
    const objects = new Set(this.#waiting.keys());
    for (const source of sources) source.follow?.(objects);
    const again: string[] = [];
    for (const object of this.#due) {
      if (await this.#compare(object)) again.push(object);
      this.#due.delete(object);
    }
    for (const object of again) this.#due.add(object);
  }

  async #read(): Promise<void> {
    const { index, clock } = this.#options;
    if (this.#reads % READS_PER_RESCAN === 0) this.#version = undefined;
    this.#reads += 1;
    const found = await index.read(this.#version);
    if (found === undefined) return;
    this.#version = found.version;
    const waiting = new Map<string, Set<string>>();
    for (const { object, seen } of found.groups)
      waiting.set(object, (waiting.get(object) ?? new Set<string>()).add(seen));
    this.#waiting = waiting;
    this.#due = new Set(waiting.keys());
    const nowMs = clock.nowMs();
    for (const [group, { notBeforeMs }] of this.#promotions)
      if (notBeforeMs + REPEAT_MAX_MS < nowMs) this.#promotions.delete(group);
  }

  /** @returns whether to compare it again in the next step */
  async #compare(object: string): Promise<boolean> {
    const { sources, isLeading } = this.#options;
    let current: string | undefined;
    for (const source of sources) current ??= source.versionOf(object);
    // Its version is not known yet.
    if (current === undefined) return true;
    let isDue = false;
    for (const seen of this.#waiting.get(object) ?? [])
      if (seen !== current && isLeading())
        isDue = (await this.#promote({ object, seen }, current)) || isDue;
    return isDue;
  }

  /** Promotes the keys of a group, unless an earlier promotion had no effect and its pause is not
   * over.
   * @returns whether to try again in the next step */
  async #promote({ object, seen }: WaitGroup, version: string): Promise<boolean> {
    const { index, clock, driver, log } = this.#options;
    const group = `${object}@${seen}`;
    const last = this.#promotions.get(group);
    const isRepeat = last?.version === version;
    const nowMs = clock.nowMs();
    if (isRepeat && nowMs < last.notBeforeMs) return true;
    const { promoted, running } = await index.promote({ object, seen });
    if (promoted > 0) {
      const withoutEffect = isRepeat ? last.withoutEffect + 1 : 0;
      const pauseMs = Math.min(REPEAT_MAX_MS, REPEAT_START_MS * 2 ** withoutEffect);
      this.#promotions.set(group, { version, withoutEffect, notBeforeMs: nowMs + pauseMs });
      this.#promotedKeys.inc({ driver }, promoted);
      log.debug(
        { object, keys: promoted },
        'an object changed: promoted the keys that wait for it',
      );
    }
    // A running key may have read the object before the change and be about to park.
    return running > 0;
  }
}
