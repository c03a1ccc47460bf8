import type { Class, StorageCapacity } from '../kube/objects.ts';
import type { Change } from '../kube/reflector.ts';
import type { JobKey } from '../queue/contract.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import type { ClusterTopology } from '../topology/cluster-topology.ts';
import type { CapacityHint, HintStore } from './hints.ts';
import {
  type CapacityItem,
  desiredItems,
  itemId,
  refreshKey,
  removalKey,
  segmentsOf,
} from './items.ts';
import type { CapacityMetrics } from './metrics.ts';
import { DesiredItems } from './desired-items.ts';
import type { ObjectStore } from './object-store.ts';
import { type CapacityManager, itemOf } from './objects.ts';
import type { ReadTimes } from './timing.ts';

/** Takes keys while this ingest leads. */
interface LeaderOnlyQueue {
  readonly isAllowing: boolean;
  ensureQueued(key: JobKey): void;
}

export interface CapacityRefresherOptions {
  readonly manager: CapacityManager;
  readonly includesImmediate: boolean;
  readonly nodes: Pick<ClusterTopology, 'csiNodes' | 'node'>;
  readonly classes: () => Iterable<Class>;
  readonly objects: Pick<ObjectStore, 'list'>;
  readonly hints: Pick<HintStore, 'take'>;
  readonly readTimes: Pick<ReadTimes, 'agesMs' | 'forget'>;
  readonly queue: LeaderOnlyQueue;
  /** Value of --capacity-poll-interval. */
  readonly pollMs: number;
  /** Pause between two looks at hints, changes and times; 250 ms where absent. */
  readonly stepMs?: number;
  readonly metrics: CapacityMetrics;
  readonly clock: Clock;
  readonly log: Logger;
}

const STEP_MS = 250;
/** Over how long a poll is spread at most. */
const SPREAD_MS = 10_000;
/** Least time between two refreshes of a whole class because of hints: each failing claim leaves
 * one. */
const CLASS_PAUSE_MS = 500;
/** How often the ages are read. */
const AGES_MS = 5_000;
/** When a value whose object is gone is enqueued again: the worker that got the first job may not
 * have seen yet that the object is gone. */
const LOST_AGAIN_MS = [1_000, 5_000];

/** Decides which values of storage capacity need a look, and enqueues them while this ingest leads:
 * all when it begins to lead and at each interval; new ones when a node or class brings them; those
 * that a run of jobs left a hint about; and those whose object was deleted. Enqueues the deletion
 * of objects that stand for no value. Upstream: external-provisioner pkg/capacity/capacity.go. */
export class CapacityRefresher {
  readonly #options: CapacityRefresherOptions;
  readonly #desired = new DesiredItems();
  readonly #loop: PollLoop;
  /** Values of the poll under way that are not enqueued yet. */
  #polled: CapacityItem[] = [];
  #sliceSize = 0;
  #nextPollMs = 0;
  #isLeading = false;
  /** What has changed since the last step. */
  #areItemsStale = true;
  #areObjectsStale = true;
  /** When a value is to be enqueued again, by item. */
  #again: { readonly item: CapacityItem; readonly atMs: number }[] = [];
  /** Classes with a hint that waits for its pause. */
  readonly #hintedClasses = new Set<string>();
  readonly #classRefreshedMs = new Map<string, number>();
  #agesReadMs = -Infinity;

  /** To be made when nodes, classes and objects are listed. */
  constructor(options: CapacityRefresherOptions) {
    this.#options = options;
    const { clock, log } = options;
    this.#loop = new PollLoop({
      step: () => this.#step(),
      onError: (error) => log.debug({ err: error }, 'could not read what capacity needs a look'),
      periodMs: options.stepMs ?? STEP_MS,
      clock,
    });
  }

  /** To be called when a node, a CSINode or a class has changed. */
  changed(): void {
    this.#areItemsStale = true;
  }

  /** To be called when one of our objects has changed. A value whose object was deleted, or lost
   * our labels, is published again. */
  objectChanged({ type, object }: Change<StorageCapacity>): void {
    this.#areObjectsStale = true;
    // An ingest that begins to lead enqueues all values.
    if (type !== 'deleted' || !this.#isLeading) return;
    const item = itemOf(object);
    if (item === undefined || !this.#desired.has(itemId(item))) return;
    this.#enqueue([item]);
    const nowMs = this.#options.clock.nowMs();
    for (const delayMs of LOST_AGAIN_MS) this.#again.push({ item, atMs: nowMs + delayMs });
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  async #step(): Promise<void> {
    const { queue, metrics } = this.#options;
    if (this.#areItemsStale) this.#updateItems();
    if (this.#areObjectsStale) this.#compare();
    if (!queue.isAllowing) {
      if (this.#isLeading) {
        metrics.setCounts({ goal: 0, current: 0, obsolete: 0 });
        metrics.setAges([]);
      }
      this.#isLeading = false;
      this.#polled = [];
      this.#again = [];
      return;
    }
    if (!this.#isLeading) this.#begin();
    this.#poll();
    this.#enqueueAgain();
    this.#enqueueHintedClasses();
    for (const hint of await this.#options.hints.take()) this.#follow(hint);
    await this.#readAges();
  }

  /** This ingest leads from now on. The one before may have died with hints, or in a poll. */
  #begin(): void {
    this.#isLeading = true;
    this.#compare();
    this.#enqueue(this.#allItems());
    this.#nextPollMs = this.#options.clock.nowMs() + this.#options.pollMs;
  }

  /** Works out anew what should be published. */
  #updateItems(): void {
    this.#areItemsStale = false;
    this.#areObjectsStale = true;
    const { nodes, classes, manager, includesImmediate, clock } = this.#options;
    const wanted = { driver: manager.driver, includesImmediate };
    const items = desiredItems(classes(), segmentsOf(nodes), wanted);
    this.#enqueue(this.#desired.replace(items, clock.nowMs()));
  }

  /** Compares what should be published with what is, and has the rest deleted. */
  #compare(): void {
    this.#areObjectsStale = false;
    const { manager, objects } = this.#options;
    const { published, superfluous } = this.#desired.compare(objects.list(), manager);
    if (!this.#options.queue.isAllowing) return;
    for (const object of superfluous) this.#options.queue.ensureQueued(removalKey(object));
    this.#options.metrics.setCounts({
      goal: this.#desired.size,
      current: published.size,
      obsolete: superfluous.length,
    });
  }

  /** Enqueues the next part of a poll, and begins one when it is time. */
  #poll(): void {
    const { clock, pollMs } = this.#options;
    const nowMs = clock.nowMs();
    if (nowMs >= this.#nextPollMs) {
      this.#nextPollMs = nowMs + pollMs;
      this.#polled = this.#allItems();
      const steps = Math.max(
        1,
        Math.min(SPREAD_MS, pollMs / 2) / (this.#options.stepMs ?? STEP_MS),
      );
      this.#sliceSize = Math.ceil(this.#polled.length / steps);
      // What could not be deleted, or was enqueued into a Redis that lost its data.
      this.#compare();
    }
    this.#enqueue(this.#polled.splice(0, this.#sliceSize));
  }

  #enqueueAgain(): void {
    const nowMs = this.#options.clock.nowMs();
    const due = this.#again.filter(({ atMs }) => atMs <= nowMs);
    if (due.length === 0) return;
    this.#again = this.#again.filter(({ atMs }) => atMs > nowMs);
    const { objects, manager } = this.#options;
    const { published } = this.#desired.compare(objects.list(), manager);
    this.#enqueue(due.map(({ item }) => item).filter((item) => !published.has(itemId(item))));
  }

  #follow(hint: CapacityHint): void {
    if (hint.kind === 'segment') this.#enqueue(this.#desired.ofSegment(hint.segment));
    else {
      this.#hintedClasses.add(hint.className);
      this.#enqueueHintedClasses();
    }
  }

  #enqueueHintedClasses(): void {
    const nowMs = this.#options.clock.nowMs();
    for (const className of this.#hintedClasses) {
      if (nowMs < (this.#classRefreshedMs.get(className) ?? 0) + CLASS_PAUSE_MS) continue;
      this.#hintedClasses.delete(className);
      const items = this.#desired.ofClass(className);
      if (items.length > 0) this.#classRefreshedMs.set(className, nowMs);
      this.#enqueue(items);
    }
  }

  /** Values that are no longer wanted are left out: a poll takes its time. A value that fails keeps
   * its delay. */
  #enqueue(items: readonly CapacityItem[]): void {
    for (const item of items)
      if (this.#desired.has(itemId(item))) this.#options.queue.ensureQueued(refreshKey(item));
  }

  #allItems(): CapacityItem[] {
    return [...this.#desired.all()].map(({ item }) => item);
  }

  async #readAges(): Promise<void> {
    const { clock, readTimes, metrics } = this.#options;
    const nowMs = clock.nowMs();
    if (nowMs < this.#agesReadMs + AGES_MS) return;
    this.#agesReadMs = nowMs;
    const ages = await readTimes.agesMs();
    metrics.setAges(
      [...this.#desired.all()].map(({ id, item, sinceMs }) => ({
        item,
        ageMs: ages.get(id) ?? Math.max(0, nowMs - sinceMs),
      })),
    );
    await readTimes.forget([...ages.keys()].filter((id) => !this.#desired.has(id)));
  }
}
