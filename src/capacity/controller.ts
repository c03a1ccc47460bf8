import type { GatewayPool } from '../gateway-client/pool.ts';
import type { KubeClient } from '../kube/client.ts';
import { isConflict, isNotFound } from '../kube/kube-error.ts';
import type { Class, OwnerReference, StorageCapacity } from '../kube/objects.ts';
import { type Change, type Reflector, startReflector } from '../kube/reflector.ts';
import { storageCapacities } from '../kube/resources.ts';
import { type Backoff, backoffMs, type Clock, timerMs } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import type { Registry } from '../runtime/metrics.ts';
import { Outage } from '../runtime/outage.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import { TokenBucket } from '../runtime/token-bucket.ts';
import { NodeWatch } from '../topology/node-watch.ts';
import { toSegments } from '../topology/term.ts';
import { classHint, segmentHint } from './hints.ts';
import { type CapacityItem, describeItem, desiredItems, itemId, segmentsOf } from './items.ts';
import { type CapacityMetrics, capacityMetrics } from './metrics.ts';
import {
  type CapacityManager,
  capacityPatch,
  chooseObject,
  itemOf,
  newCapacityObject,
  readCapacity,
  type ReportedCapacity,
  selectorOf,
  transformCapacity,
} from './objects.ts';

export interface CapacityControllerOptions {
  readonly kube: KubeClient;
  readonly getCapacity: GatewayPool['getCapacity'];
  /** Address of the active gateway. */
  readonly gateway: () => Promise<string>;
  readonly classes: () => Iterable<Class>;
  /** The only node whose capacity is published; undefined for all. */
  readonly ownNode: string | undefined;
  /** Takes the hints of the workers since the last time. */
  readonly takeHints: () => Promise<readonly string[]>;
  /** Finds the owner of the objects; undefined: they have none. */
  readonly findOwner: (signal: AbortSignal) => Promise<OwnerReference | undefined>;
  readonly isLeading: () => boolean;
  readonly manager: CapacityManager;
  /** The namespace of our objects. */
  readonly namespace: string;
  /** Value of --capacity-for-immediate-binding. */
  readonly includesImmediate: boolean;
  readonly pollMs: number;
  /** Driver calls at once. */
  readonly threads: number;
  /** Deadline of one driver call. */
  readonly timeoutMs: number;
  /** Delays after a failure. */
  readonly backoff: Backoff;
  /** Objects written per second, and above that at once; 0 or less per second: no limit. */
  readonly writes: { readonly perSecond: number; readonly burst: number };
  readonly metrics: Registry;
  readonly clock: Clock;
  readonly log: Logger;
  /** Pause between two checks for changes. */
  readonly stepMs: number;
}

/** A value of storage capacity, and its objects: one if all is well. */
interface Entry {
  /** Undefined: the object stands for no value. */
  readonly item: CapacityItem | undefined;
  /** The parameters of its class; undefined: the value must not be published. */
  parameters: Readonly<Record<string, string>> | undefined;
  /** When the driver last reported it; until the first report, since when it is wanted. Unix ms. */
  readMs: number;
  /** By name. */
  readonly objects: Map<string, StorageCapacity>;
  failures: number;
  /** When to retry after a failure. */
  retryMs: number;
}

const OWNER_PAUSE_MS = 2_000;

/** Publishes the storage capacity of a driver while this ingest leads. Asks the driver for all
 * values when it begins to lead and at each interval. Between intervals it asks for a value that is
 * new because of a node or class, that a worker's hint names, or whose object was created or
 * deleted. Writes an object when its value has changed, and deletes objects that stand for no
 * value. Upstream: external-provisioner pkg/capacity/capacity.go. */
export class CapacityController {
  readonly #options: CapacityControllerOptions;
  readonly #nodes: NodeWatch;
  readonly #objects: Reflector<StorageCapacity>;
  readonly #loop: PollLoop;
  readonly #stopped = new AbortController();
  readonly #writes: TokenBucket | undefined;
  readonly #metrics: CapacityMetrics;
  readonly #outage: Outage;
  /** By item id, or by the name of an object that stands for no value. */
  readonly #entries = new Map<string, Entry>();
  /** The entries to refresh, in this order. */
  readonly #due = new Set<Entry>();
  readonly #running = new Map<Entry, Promise<void>>();
  #owner: OwnerReference | undefined;
  #ownerTrouble: string | undefined = 'looking up the owner of this pod';
  #isLeading = false;
  #areItemsStale = true;
  #nextPollMs = 0;

  constructor(options: CapacityControllerOptions) {
    this.#options = options;
    const { kube, manager, namespace, ownNode, writes, metrics, clock, log } = options;
    const nowMs = clock.nowMs();
    this.#metrics = capacityMetrics(metrics, manager.driver);
    this.#outage = new Outage(log);
    this.#writes =
      writes.perSecond <= 0
        ? undefined
        : new TokenBucket({ ...writes, burst: Math.max(1, writes.burst), nowMs });
    const shared = { client: kube, log, metrics };
    this.#nodes = new NodeWatch({
      ...shared,
      driver: manager.driver,
      ownNode,
      onChange: () => this.changed(),
    });
    this.#objects = startReflector({
      ...shared,
      resource: storageCapacities,
      namespace,
      labelSelector: selectorOf(manager),
      transform: transformCapacity,
      onChange: (change) => this.#objectChanged(change),
    });
    this.#loop = new PollLoop({
      step: () => this.#step(),
      onError: (error) =>
        log.error({ err: error }, 'could not update storage capacity; trying again'),
      periodMs: options.stepMs,
      clock,
    });
  }

  /** To be called when a node, a CSINode or a class has changed. */
  changed(): void {
    this.#areItemsStale = true;
  }

  /** Why published capacity is missing or may be wrong, in one line; undefined if all is well. */
  get trouble(): string | undefined {
    return this.#ownerTrouble ?? this.#nodes.trouble ?? this.#objects.trouble;
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    this.#outage.forget();
    await this.#loop.stop();
    await Promise.all(this.#running.values());
    await Promise.all([this.#objects.stop(), this.#nodes.stop()]);
  }

  /** @returns how long to pause, in ms */
  async #step(): Promise<number> {
    const { stepMs, isLeading, clock } = this.#options;
    if (this.#ownerTrouble !== undefined) await this.#findOwner();
    if (this.#ownerTrouble !== undefined) return OWNER_PAUSE_MS;
    if (!this.#nodes.hasSynced || !this.#objects.hasSynced) return stepMs;
    const nowMs = clock.nowMs();
    if (this.#areItemsStale) this.#updateItems(nowMs);
    const didLead = this.#isLeading;
    this.#isLeading = isLeading();
    if (this.#isLeading) {
      await this.#noteDue(nowMs, didLead);
      this.#work();
    } else {
      this.#due.clear();
    }
    this.#metrics.show(this.#isLeading ? [...this.#entries.values()] : [], nowMs);
    return stepMs;
  }

  /** Collects the entries to refresh now. */
  async #noteDue(nowMs: number, didLead: boolean): Promise<void> {
    if (!didLead || nowMs >= this.#nextPollMs) {
      this.#nextPollMs = nowMs + timerMs(this.#options.pollMs);
      for (const entry of this.#entries.values()) this.#add(entry);
    }
    await this.#takeHints();
    let isFailing = false;
    for (const entry of this.#entries.values()) {
      if (nowMs >= entry.retryMs) this.#add(entry);
      isFailing ||= entry.failures > 0;
    }
    if (!isFailing) this.#outage.ended({}, 'storage capacity is published again');
  }

  async #findOwner(): Promise<void> {
    const { findOwner, log } = this.#options;
    try {
      this.#owner = await findOwner(this.#stopped.signal);
      this.#ownerTrouble = undefined;
    } catch (error) {
      if (this.#stopped.signal.aborted) return;
      const trouble = `look up owner(s) of pod: ${messageOf(error)}`;
      if (trouble !== this.#ownerTrouble)
        log.warn(
          { reason: trouble },
          'could not find the owner of CSIStorageCapacity objects: publishing none; trying again',
        );
      this.#ownerTrouble = trouble;
    }
  }

  /** Finds the values that should be published. */
  #updateItems(nowMs: number): void {
    this.#areItemsStale = false;
    const { classes, manager, includesImmediate } = this.#options;
    const how = { driver: manager.driver, includesImmediate };
    const wanted = new Map(
      desiredItems(classes(), segmentsOf(this.#nodes), how).map((item) => [itemId(item), item]),
    );
    for (const [id, entry] of this.#entries) {
      if (entry.parameters === undefined || wanted.has(id)) continue;
      entry.parameters = undefined;
      if (entry.objects.size > 0) this.#add(entry);
      else this.#entries.delete(id);
    }
    for (const [id, item] of wanted) {
      const entry = this.#entryOf(id, item);
      if (entry.parameters === undefined) {
        entry.readMs = nowMs;
        this.#add(entry);
      }
      entry.parameters = item.parameters;
    }
  }

  #entryOf(id: string, item: CapacityItem | undefined): Entry {
    const entry = this.#entries.get(id) ?? {
      item,
      parameters: undefined,
      readMs: 0,
      objects: new Map(),
      failures: 0,
      retryMs: Infinity,
    };
    this.#entries.set(id, entry);
    return entry;
  }

  #objectChanged({ type, object }: Change<StorageCapacity>): void {
    if (type === 'deleted') this.#remove(object);
    else this.#put(object);
  }

  /** Notes an object that exists. Its class and its segment never change. */
  #put(object: StorageCapacity): void {
    const { name, uid } = object.metadata;
    const entry = this.#entryOf(objectId(object), itemOf(object));
    const isKnown = entry.objects.get(name)?.metadata.uid === uid;
    entry.objects.set(name, object);
    // The watch may show an object that we are creating before the API server has answered.
    const isBeingMade = this.#running.has(entry) && entry.objects.size === 1;
    if (!isKnown && !isBeingMade) this.#add(entry);
  }

  #remove(object: StorageCapacity): void {
    const { name, uid } = object.metadata;
    const id = objectId(object);
    const entry = this.#entries.get(id);
    if (entry?.objects.get(name)?.metadata.uid !== uid) return;
    entry.objects.delete(name);
    if (entry.parameters !== undefined) this.#add(entry);
    else if (entry.objects.size === 0) this.#entries.delete(id);
  }

  async #takeHints(): Promise<void> {
    const { takeHints, log } = this.#options;
    const hints = await takeHints().catch((error: unknown) => {
      log.debug({ err: error }, 'could not read the hints about capacity');
      return [];
    });
    if (hints.length === 0) return;
    const told = new Set(hints);
    for (const entry of this.#entries.values()) {
      if (entry.item === undefined) continue;
      const { className, segment } = entry.item;
      if (told.has(classHint(className)) || told.has(segmentHint(segment))) this.#add(entry);
    }
  }

  #add(entry: Entry): void {
    if (this.#isLeading) this.#due.add(entry);
  }

  /** Refreshes the entries that are due, as many at once as there are threads. */
  #work(): void {
    for (const entry of this.#due) {
      if (this.#running.size >= this.#options.threads || this.#stopped.signal.aborted) return;
      if (this.#running.has(entry)) continue;
      this.#due.delete(entry);
      const run = this.#look(entry).finally(() => {
        this.#running.delete(entry);
        this.#work();
      });
      this.#running.set(entry, run);
    }
  }

  /** Refreshes an entry. Never rejects. */
  async #look(entry: Entry): Promise<void> {
    const { backoff, clock } = this.#options;
    entry.retryMs = Infinity;
    try {
      await this.#publish(entry);
      entry.failures = 0;
    } catch (error) {
      entry.failures += 1;
      entry.retryMs = clock.nowMs() + backoffMs(backoff, entry.failures);
      const reason = messageOf(error);
      const object = entry.item && describeItem(entry.item);
      this.#outage.met(reason, { object, reason }, 'storage capacity: trying again');
    }
  }

  /** Asks the driver for the value, if it is wanted, and keeps one object with it; else no object.
   * @throws CsiError, KubeError, Error */
  async #publish(entry: Entry): Promise<void> {
    const { item, parameters } = entry;
    const isWanted = item !== undefined && parameters !== undefined;
    const kept = isWanted ? chooseObject(entry.objects.values()) : undefined;
    for (const object of entry.objects.values()) {
      if (object === kept || !(await this.#mayWrite())) continue;
      // The value is wanted again, so the entry is due again.
      if (!isWanted && entry.parameters !== undefined) return;
      await this.#deleteObject(object);
    }
    if (!isWanted) return;
    const reported = await this.#ask(item, parameters);
    entry.readMs = this.#options.clock.nowMs();
    const object = chooseObject(entry.objects.values());
    if (object === undefined) await this.#createObject(entry, item, reported);
    else await this.#updateObject(entry, object, reported);
  }

  async #ask(
    { segment }: CapacityItem,
    parameters: Readonly<Record<string, string>>,
  ): Promise<ReportedCapacity> {
    const { getCapacity, gateway, timeoutMs } = this.#options;
    const answer = await getCapacity(
      { parameters, accessibleTopology: { segments: toSegments(segment) } },
      { timeoutMs, gateway: await gateway() },
    );
    return readCapacity(answer);
  }

  async #createObject(entry: Entry, item: CapacityItem, reported: ReportedCapacity): Promise<void> {
    const { kube, manager, namespace } = this.#options;
    if (!(await this.#mayWrite()) || entry.parameters === undefined) return;
    const owner = this.#owner;
    const body = newCapacityObject({ item, reported, owner, manager, namespace });
    const made = await kube.create<StorageCapacity>(storageCapacities, namespace, body);
    // The watch may show the object later.
    const { name } = made.metadata;
    if (!entry.objects.has(name)) entry.objects.set(name, transformCapacity(made));
    // The watch may have shown an object of somebody else before the API server answered.
    if (entry.objects.size > 1) this.#add(entry);
  }

  async #updateObject(
    entry: Entry,
    object: StorageCapacity,
    reported: ReportedCapacity,
  ): Promise<void> {
    const { kube, namespace } = this.#options;
    const body = capacityPatch(object, reported, this.#owner);
    if (body === undefined) return;
    if (!(await this.#mayWrite()) || entry.parameters === undefined) return;
    const { name } = object.metadata;
    try {
      await kube.patch(storageCapacities, { namespace, name }, { type: 'merge', body });
    } catch (error) {
      if (isNotFound(error)) this.#remove(object);
      throw error;
    }
  }

  async #deleteObject(object: StorageCapacity): Promise<void> {
    const { kube, namespace } = this.#options;
    const { name, uid } = object.metadata;
    try {
      await kube.delete(storageCapacities, { namespace, name }, { preconditions: { uid } });
    } catch (error) {
      // Another object has this name now.
      if (!isConflict(error)) throw error;
    }
  }

  /** Waits until this process may write an object.
   * @returns false if this process stops, or no longer leads */
  async #mayWrite(): Promise<boolean> {
    const { clock, isLeading } = this.#options;
    const { signal } = this.#stopped;
    const waitMs = (): number => this.#writes?.waitMs(clock.nowMs()) ?? 0;
    while (waitMs() > 0 && !signal.aborted) await clock.sleep(timerMs(waitMs()), signal);
    this.#writes?.take(clock.nowMs());
    return !signal.aborted && isLeading();
  }
}

/** The key of the entry that an object belongs to. */
function objectId(object: StorageCapacity): string {
  const item = itemOf(object);
  return item === undefined ? object.metadata.name : itemId(item);
}
