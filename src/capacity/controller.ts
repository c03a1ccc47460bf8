import type { GatewayPool } from '../gateway-client/pool.ts';
import type { KubeClient } from '../kube/client.ts';
import { isConflict, isNotFound } from '../kube/kube-error.ts';
import type { Class, OwnerReference, StorageCapacity } from '../kube/objects.ts';
import type { Change } from '../kube/reflector.ts';
import { type Backoff, backoffMs, type Clock, timerMs } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { Outage } from '../runtime/outage.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import { TokenBucket } from '../runtime/token-bucket.ts';
import type { ClusterTopology } from '../topology/cluster-topology.ts';
import { toSegments } from '../topology/term.ts';
import type { CapacityHint } from './hints.ts';
import {
  type CapacityItem,
  describeItem,
  desiredItems,
  itemId,
  segmentsOf,
  segmentText,
} from './items.ts';
import type { CapacityMetrics } from './metrics.ts';
import type { ObjectStore } from './object-store.ts';
import {
  type CapacityManager,
  capacityPatch,
  chooseObject,
  itemOf,
  newCapacityObject,
  readCapacity,
  type ReportedCapacity,
} from './objects.ts';

export interface CapacityControllerOptions {
  readonly kube: Pick<KubeClient, 'create' | 'patch' | 'delete'>;
  readonly getCapacity: GatewayPool['getCapacity'];
  /** Address of the active gateway. */
  readonly gateway: () => Promise<string>;
  readonly classes: () => Iterable<Class>;
  readonly nodes: Pick<ClusterTopology, 'csiNodes' | 'node'>;
  readonly objects: Pick<ObjectStore, 'get' | 'list' | 'resource' | 'created' | 'gone'>;
  readonly takeHints: () => Promise<readonly CapacityHint[]>;
  readonly isLeading: () => boolean;
  readonly manager: CapacityManager;
  readonly namespace: string;
  readonly owner: OwnerReference | undefined;
  /** Value of --capacity-for-immediate-binding. */
  readonly includesImmediate: boolean;
  readonly pollMs: number;
  /** Driver calls at once. */
  readonly threads: number;
  /** Of one driver call. */
  readonly timeoutMs: number;
  /** After a failure. */
  readonly backoff: Backoff;
  /** Objects written per second, and above that at once; 0 or less per second: no limit. */
  readonly writes: { readonly perSecond: number; readonly burst: number };
  readonly metrics: CapacityMetrics;
  readonly clock: Clock;
  readonly log: Logger;
  /** Pause between two looks at what has changed; 500 ms where absent. */
  readonly stepMs?: number;
}

/** A value that is to be published. */
interface Wanted {
  readonly item: CapacityItem;
  readonly cls: Class;
  /** When it was read from the driver last; before that, since when it is wanted. Unix ms. */
  readMs: number;
}

const STEP_MS = 500;
/** How often the ages are shown. */
const AGES_MS = 5_000;

/** Publishes the storage capacity of a driver while this ingest leads. Asks the driver for all
 * values when it begins to lead and at each interval; for new ones when a node or class brings
 * them; for those of which a worker told that they may have changed; and for those whose object is
 * not as it was. Writes an object when its value has changed, and deletes those that stand for no
 * value. Upstream: external-provisioner pkg/capacity/capacity.go. */
export class CapacityController {
  readonly #options: CapacityControllerOptions;
  readonly #loop: PollLoop;
  readonly #stopped = new AbortController();
  readonly #writes: TokenBucket | undefined;
  readonly #outage: Outage;
  /** By item id. */
  #wanted = new Map<string, Wanted>();
  /** Objects that stand for no value, by name. */
  #superfluous = new Map<string, StorageCapacity>();
  /** Item ids, and names of superfluous objects, that are to be looked at, in their order. */
  readonly #due = new Set<string>();
  readonly #running = new Map<string, Promise<void>>();
  /** What has failed, and when it is tried again. */
  readonly #failed = new Map<string, { readonly failures: number; readonly atMs: number }>();
  #isLeading = false;
  #areItemsStale = true;
  #areObjectsStale = true;
  #nextPollMs = 0;
  #nextAgesMs = 0;

  /** To be made when nodes, classes and objects are listed. */
  constructor(options: CapacityControllerOptions) {
    this.#options = options;
    const { clock, log, stepMs = STEP_MS, writes } = options;
    const nowMs = clock.nowMs();
    this.#outage = new Outage(log);
    this.#writes =
      writes.perSecond <= 0
        ? undefined
        : new TokenBucket({ ...writes, burst: Math.max(1, writes.burst), nowMs });
    this.#loop = new PollLoop({
      step: () => this.#step(),
      onError: (error) => log.error({ err: error }, 'storage capacity could not be looked after'),
      periodMs: stepMs,
      clock,
    });
  }

  /** A node, a CSINode or a class has changed. */
  changed(): void {
    this.#areItemsStale = true;
  }

  /** One of our objects has changed, and not by this process. */
  objectChanged({ type, object }: Change<StorageCapacity>): void {
    this.#areObjectsStale = true;
    const item = itemOf(object);
    if (item !== undefined && type !== 'modified') this.#add([itemId(item)]);
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    this.#outage.forget();
    await this.#loop.stop();
    await Promise.all(this.#running.values());
  }

  async #step(): Promise<void> {
    const { isLeading, pollMs, clock } = this.#options;
    if (this.#areItemsStale) this.#updateItems();
    if (!isLeading()) return this.#end();
    const nowMs = clock.nowMs();
    if (!this.#isLeading || nowMs >= this.#nextPollMs) {
      this.#isLeading = true;
      this.#nextPollMs = nowMs + timerMs(pollMs);
      this.#areObjectsStale = true;
      this.#add(this.#wanted.keys());
    }
    for (const [id, { atMs }] of this.#failed) if (nowMs >= atMs) this.#add([id]);
    for (const hint of await this.#takeHints()) this.#follow(hint);
    if (this.#areObjectsStale) this.#compare();
    if (nowMs >= this.#nextAgesMs) this.#showAges(nowMs);
    this.#work();
  }

  /** Another ingest leads. */
  #end(): void {
    if (this.#isLeading) {
      this.#options.metrics.setCounts({ goal: 0, current: 0, obsolete: 0 });
      this.#options.metrics.setOldest(new Map());
    }
    this.#isLeading = false;
    this.#due.clear();
    this.#failed.clear();
  }

  /** Works out anew what should be published. */
  #updateItems(): void {
    this.#areItemsStale = false;
    this.#areObjectsStale = true;
    const { nodes, classes, manager, includesImmediate, clock } = this.#options;
    const byName = new Map([...classes()].map((cls) => [cls.metadata.name, cls]));
    const how = { driver: manager.driver, includesImmediate };
    const known = this.#wanted;
    this.#wanted = new Map();
    for (const item of desiredItems(byName.values(), segmentsOf(nodes), how)) {
      const id = itemId(item);
      const cls = byName.get(item.className);
      const before = known.get(id);
      if (cls === undefined) continue;
      this.#wanted.set(id, { item, cls, readMs: before?.readMs ?? clock.nowMs() });
      if (before === undefined) this.#add([id]);
    }
  }

  /** Compares what should be published with what is. */
  #compare(): void {
    this.#areObjectsStale = false;
    const byItem = new Map<string, StorageCapacity[]>();
    const superfluous: StorageCapacity[] = [];
    for (const { object, itemId: id } of this.#options.objects.list()) {
      if (id === undefined || !this.#wanted.has(id)) superfluous.push(object);
      else byItem.set(id, [...(byItem.get(id) ?? []), object]);
    }
    for (const objects of byItem.values())
      if (objects.length > 1) {
        const kept = chooseObject(objects);
        superfluous.push(...objects.filter((object) => object !== kept));
      }
    this.#superfluous = new Map(superfluous.map((object) => [object.metadata.name, object]));
    this.#add(this.#superfluous.keys());
    this.#options.metrics.setCounts({
      goal: this.#wanted.size,
      current: byItem.size,
      obsolete: superfluous.length,
    });
  }

  #takeHints(): Promise<readonly CapacityHint[]> {
    return this.#options.takeHints().catch((error: unknown) => {
      this.#options.log.debug({ err: error }, 'could not read which capacity has changed');
      return [];
    });
  }

  #follow(hint: CapacityHint): void {
    const segment = 'segment' in hint ? segmentText(hint.segment) : undefined;
    for (const [id, { item }] of this.#wanted) {
      const isMeant =
        'className' in hint
          ? item.className === hint.className
          : segmentText(item.segment) === segment;
      if (isMeant) this.#add([id]);
    }
  }

  #showAges(nowMs: number): void {
    this.#nextAgesMs = nowMs + AGES_MS;
    const oldest = new Map<string, number>();
    for (const { item, readMs } of this.#wanted.values()) {
      const { className } = item;
      oldest.set(className, Math.max(oldest.get(className) ?? 0, nowMs - readMs));
    }
    this.#options.metrics.setOldest(oldest);
  }

  #add(ids: Iterable<string>): void {
    if (this.#isLeading) for (const id of ids) this.#due.add(id);
  }

  /** Begins with what is due, as far as the threads suffice. */
  #work(): void {
    for (const id of this.#due) {
      if (this.#running.size >= this.#options.threads || this.#stopped.signal.aborted) return;
      if (this.#running.has(id)) continue;
      this.#due.delete(id);
      const run = this.#look(id).finally(() => {
        this.#running.delete(id);
        this.#work();
      });
      this.#running.set(id, run);
    }
  }

  /** Never rejects. */
  async #look(id: string): Promise<void> {
    const { backoff, clock } = this.#options;
    const wanted = this.#wanted.get(id);
    const superfluous = this.#superfluous.get(id);
    try {
      if (wanted !== undefined) await this.#refresh(id, wanted);
      else if (superfluous !== undefined) await this.#remove(superfluous);
      this.#failed.delete(id);
      if (this.#failed.size === 0) this.#outage.ended({}, 'storage capacity is published again');
    } catch (error) {
      const failures = (this.#failed.get(id)?.failures ?? 0) + 1;
      const atMs = clock.nowMs() + backoffMs(backoff, failures);
      this.#failed.set(id, { failures, atMs });
      const reason = messageOf(error);
      const object = wanted === undefined ? id : describeItem(wanted.item);
      this.#outage.met(reason, { object, reason }, 'storage capacity: trying again');
    }
  }

  /** Asks the driver for a value, and writes its object if that is not as it should be.
   * @throws CsiError, KubeError, Error */
  async #refresh(id: string, wanted: Wanted): Promise<void> {
    const { kube, objects, manager, namespace, owner, clock } = this.#options;
    const { item } = wanted;
    const reported = await this.#ask(wanted);
    wanted.readMs = clock.nowMs();
    const known = objects.get(item);
    const body = known && capacityPatch(known, reported, owner);
    if (known !== undefined && body === undefined) return;
    if (!(await this.#mayWrite()) || !this.#wanted.has(id)) return;
    if (known === undefined || body === undefined) {
      const made = newCapacityObject(objects.resource, {
        item,
        reported,
        owner,
        manager,
        namespace,
      });
      objects.created(await kube.create(objects.resource, namespace, made));
      this.#areObjectsStale = true;
      return;
    }
    const { name } = known.metadata;
    try {
      await kube.patch(objects.resource, { namespace, name }, { type: 'merge', body });
    } catch (error) {
      if (isNotFound(error)) objects.gone(name);
      throw error;
    }
  }

  async #ask({ item, cls }: Wanted): Promise<ReportedCapacity> {
    const { getCapacity, gateway, timeoutMs } = this.#options;
    const answer = await getCapacity(
      {
        parameters: { ...cls.parameters },
        accessibleTopology: { segments: toSegments(item.segment) },
      },
      { timeoutMs, gateway: await gateway() },
    );
    const read = readCapacity(answer);
    if (typeof read === 'string') throw new Error(read);
    return read;
  }

  async #remove({ metadata: { name, uid } }: StorageCapacity): Promise<void> {
    const { kube, objects, namespace } = this.#options;
    if (!(await this.#mayWrite()) || !this.#superfluous.has(name)) return;
    try {
      await kube.delete(objects.resource, { namespace, name }, { preconditions: { uid } });
    } catch (error) {
      // Another object has the name now.
      if (!isConflict(error)) throw error;
    }
  }

  /** Waits until an object may be written.
   * @returns false if this process stops, or leads no more */
  async #mayWrite(): Promise<boolean> {
    const { clock, isLeading } = this.#options;
    const { signal } = this.#stopped;
    while (this.#writes?.take(clock.nowMs()) === false && !signal.aborted)
      await clock.sleep(timerMs(this.#writes.waitMs(clock.nowMs())), signal);
    return !signal.aborted && isLeading();
  }
}
