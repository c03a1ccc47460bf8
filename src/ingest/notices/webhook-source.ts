import QuickLRU from 'quick-lru';
import type { KubeClient } from '../../kube/client.ts';
import type { Claim, Class, Volume } from '../../kube/objects.ts';
import { type Change, type Reflector, startReflector } from '../../kube/reflector.ts';
import { claims, classes, volumes } from '../../kube/resources.ts';
import type { JobKey } from '../../queue/contract.ts';
import { objectId, parseObjectId } from '../../queue/dependency-index.ts';
import type { HandleSharers } from '../../records/shared-handles.ts';
import { unlessAborted } from '../../runtime/abort.ts';
import type { Clock } from '../../runtime/clock.ts';
import { messageOf } from '../../runtime/error-message.ts';
import type { Logger } from '../../runtime/log.ts';
import type { Registry } from '../../runtime/metrics.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import { isPending, restoredSnapshot } from '../../volumes/data-source.ts';
import { EventHandler } from '../objects/event-handler.ts';
import type { DriverObjects, ObjectSource, ServedDriver } from '../objects/object-source.ts';
import { transformClaim, transformClass, transformVolume } from '../objects/transforms.ts';
import type { Look } from './looks.ts';
import { type PacedLists, Unwanted } from './paced-lists.ts';
import { WaitedObjects } from './waited-objects.ts';

export interface WebhookSourceOptions {
  readonly client: KubeClient;
  /** Resolves when hints that are sent from now on are read, or when the signal aborts. A list
   * begins after that, so that no change falls between the two. */
  readonly waitUntilReading: (signal: AbortSignal) => Promise<void>;
  /** Called with each PV that was read because a hint named it. */
  readonly onVolume: (volume: Volume) => void;
  readonly lists: PacedLists;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Registry;
}

/** Unfinished objects whose last state is remembered, in order to tell an edit of a user. */
const MAX_REMEMBERED = 5_000;

/** An object as it was seen last. */
interface Remembered<T> {
  readonly object: T;
  /** Whether a look offered it to all drivers. A list enqueues it for one driver at most. */
  readonly isOffered: boolean;
}

/** Claims and volumes without a watch of them and without a cache: hints say which of them to look
 * at, and a resync lists all of them in pages, of which nothing is kept. Classes, which are few,
 * are watched.
 *
 * The last state of some thousand objects that are unfinished (claims that are pending or being
 * deleted, volumes that are not bound) is remembered: what has changed since tells whether a user
 * has edited an object, so that a delayed job of it should run now. It is judged as a change that a
 * watch reports, and so are the writes of sutler and of the volume controller, which end no
 * back-off. An edit of an object that is not remembered, as right after a change of leader, waits
 * for the back-off. */
export class WebhookSource implements ObjectSource {
  readonly #options: WebhookSourceOptions;
  readonly #stopped = new AbortController();
  readonly #classes: Reflector<Class>;
  readonly #drivers = new Set<HintedDriver>();
  readonly #claims = new QuickLRU<string, Remembered<Claim>>({ maxSize: MAX_REMEMBERED });
  readonly #volumes = new QuickLRU<string, Remembered<Volume>>({ maxSize: MAX_REMEMBERED });
  /** Classes whose claims have to be enqueued. */
  readonly #addedClasses = new Set<string>();
  #isEnqueuingByClass = false;

  constructor(options: WebhookSourceOptions) {
    const { client, log, metrics } = options;
    this.#options = options;
    this.#classes = startReflector<Class>({
      client,
      log,
      metrics,
      resource: classes,
      transform: transformClass,
      onChange: (change) => this.#classChanged(change),
    });
  }

  async waitForSync(signal: AbortSignal): Promise<void> {
    await unlessAborted(this.#classes.waitForSync(), signal);
  }

  get trouble(): string | undefined {
    return this.#classes.trouble ?? this.#options.lists.trouble;
  }

  /** Whether this process leads a driver. */
  get isLeading(): boolean {
    return [...this.#drivers].some(({ served }) => served.queue.isAllowing);
  }

  serve(served: ServedDriver): DriverObjects {
    const { client, clock, log } = this.#options;
    const driver: HintedDriver = new HintedDriver({
      source: this,
      served,
      classes: this.#classes,
      waited: new WaitedObjects({
        client,
        onVersion: (object) => served.onObject?.(object),
        clock,
        log,
      }),
      log,
      onStop: () => void this.#drivers.delete(driver),
    });
    this.#drivers.add(driver);
    return driver;
  }

  /** Offers an object that was read because a hint named it to all drivers. One that does not exist
   * counts as not stored yet: nothing follows from it, but for keys that wait for it. */
  looked(look: Look): void {
    for (const { waited } of this.#drivers) waited.looked(look);
    const { target, object } = look;
    if (object === undefined) return;
    try {
      if (target.resource === claims.plural) this.#offerClaim(transformClaim(object), true);
      else this.#offerVolume(transformVolume(object), true);
    } catch (error) {
      this.#options.log.error(
        { ...target, error: messageOf(error) },
        'object skipped: not readable',
      );
    }
  }

  /** Lists all claims. Objects that have changed since they were seen last are offered to all
   * drivers. May name a claim twice.
   * @throws Unwanted */
  async *listClaims(isWanted: () => boolean): AsyncGenerator<Claim> {
    await this.#options.waitUntilReading(this.#stopped.signal);
    const listing = { resource: claims, transform: transformClaim, isWanted };
    for await (const page of this.#options.lists.pages(listing))
      for (const claim of page) {
        this.#offerClaim(claim, false);
        yield claim;
      }
  }

  /** Lists all volumes, as `listClaims` does claims.
   * @throws Unwanted */
  async *listVolumes(isWanted: () => boolean): AsyncGenerator<Volume> {
    await this.#options.waitUntilReading(this.#stopped.signal);
    const listing = { resource: volumes, transform: transformVolume, isWanted };
    for await (const page of this.#options.lists.pages(listing))
      for (const volume of page) {
        this.#offerVolume(volume, false);
        yield volume;
      }
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    this.#options.lists.stop();
    await this.#classes.stop();
  }

  /** @param isLook  whether a claim is offered too that no look has offered yet; a list leaves that
   *   to the resync, which may have to spread the keys */
  #offerClaim(claim: Claim, isLook: boolean): void {
    const key = objectId({ resource: claims.plural, ...claim.metadata });
    const before = sameObject(this.#claims.get(key), claim);
    const isOffered = before?.isOffered ?? false;
    for (const { triage } of this.#drivers) {
      if (isLook && !isOffered) triage.enqueueClaim(claim, 'ensureQueued');
      if (before !== undefined) triage.claimChanged(claim, before.object);
    }
    const isUnfinished = isPending(claim) || claim.metadata.deletionTimestamp !== undefined;
    if (isUnfinished) this.#claims.set(key, { object: claim, isOffered: isOffered || isLook });
    else this.#claims.delete(key);
  }

  /** See #offerClaim. */
  #offerVolume(volume: Volume, isLook: boolean): void {
    const key = volume.metadata.name;
    const before = sameObject(this.#volumes.get(key), volume);
    const isOffered = before?.isOffered ?? false;
    const drivers = [...this.#drivers];
    for (const { triage } of drivers) {
      if (isLook && !isOffered) triage.enqueueVolume(volume, 'ensureQueued');
      if (before !== undefined) triage.volumeChanged(volume, before.object);
    }
    if (isLook) this.#options.onVolume(volume);
    const isUnfinished =
      volume.status?.phase !== 'Bound' ||
      drivers.some(({ triage }) => triage.keysOfVolume(volume).length > 0);
    if (isUnfinished) this.#volumes.set(key, { object: volume, isOffered: isOffered || isLook });
    else this.#volumes.delete(key);
  }

  /** A class that was added, or deleted and created again, may end the cause of its claims'
   * failures. Those of the first list concern nobody: the resync of a new leader comes after it. */
  #classChanged({ type, object }: Change<Class>): void {
    const id = objectId({ resource: classes.plural, name: object.metadata.name });
    for (const { served } of this.#drivers) served.onObject?.(id);
    if (type !== 'added' || !this.#classes.hasSynced || !this.isLeading) return;
    this.#addedClasses.add(object.metadata.name);
    if (!this.#isEnqueuingByClass) void this.#enqueueByClass();
  }

  async #enqueueByClass(): Promise<void> {
    this.#isEnqueuingByClass = true;
    try {
      while (this.#addedClasses.size > 0) {
        const added = new Set(this.#addedClasses);
        this.#addedClasses.clear();
        await this.#enqueueClaimsOf(added);
      }
    } catch (error) {
      if (!(error instanceof Unwanted))
        this.#options.log.warn({ err: error }, 'could not enqueue the claims of a new class');
    }
    this.#isEnqueuingByClass = false;
  }

  async #enqueueClaimsOf(classNames: ReadonlySet<string>): Promise<void> {
    for await (const claim of this.listClaims(() => this.isLeading)) {
      if (!classNames.has(classNameOf(claim))) continue;
      for (const { triage } of this.#drivers) triage.enqueueClaim(claim, 'enqueueNow');
    }
  }
}

/** What a driver sees. */
interface Hinted {
  readonly source: Pick<WebhookSource, 'waitForSync' | 'listClaims' | 'listVolumes'>;
  readonly served: ServedDriver;
  readonly classes: Reflector<Class>;
  readonly waited: WaitedObjects;
  readonly log: Logger;
  readonly onStop: () => void;
}

class HintedDriver implements DriverObjects {
  readonly served: ServedDriver;
  readonly triage: EventHandler;
  readonly waited: WaitedObjects;
  /** What happens without a watch of PVs is seen by no one. */
  readonly isFollowingVolumes = false;
  readonly #hinted: Hinted;

  constructor(hinted: Hinted) {
    const { served, waited, log } = hinted;
    this.served = served;
    this.waited = waited;
    this.#hinted = hinted;
    const lookups = {
      classOf: (name: string) => hinted.classes.get(name),
      // Both are left to the job, which reads the volume of the claim, and the view of shared
      // handles.
      hasVolume: () => false,
      findOther: () => undefined,
    };
    this.triage = new EventHandler(served, lookups, log);
  }

  waitForSync(signal: AbortSignal): Promise<void> {
    return this.#hinted.source.waitForSync(signal);
  }

  /** @throws Unwanted when this ingest does not lead the driver any more */
  async *outstanding(): AsyncGenerator<JobKey> {
    const { source } = this.#hinted;
    const isWanted = (): boolean => this.served.queue.isAllowing;
    for await (const claim of source.listClaims(isWanted)) yield* this.triage.keysOfClaim(claim);
    for await (const volume of source.listVolumes(isWanted))
      yield* this.triage.keysOfVolume(volume);
  }

  /** Nothing is refused before its job has compared the handles. */
  reportRefused(): void {}

  follow(objects: ReadonlySet<string>): void {
    this.waited.follow(objects);
  }

  versionOf(object: string): string | undefined {
    const { classes: cached } = this.#hinted;
    const { resource, name } = parseObjectId(object);
    if (resource !== classes.plural) return this.waited.versionOf(object);
    if (!cached.hasSynced || cached.trouble !== undefined) return undefined;
    return cached.get(name)?.metadata.resourceVersion ?? '';
  }

  classes(): Iterable<Class> {
    return this.#hinted.classes.list();
  }

  /** @throws Unwanted when this ingest does not lead the driver any more */
  async restoredSnapshots(): Promise<ReadonlySet<string>> {
    const restored = new Set<string>();
    for await (const claim of this.#hinted.source.listClaims(() => this.served.queue.isAllowing)) {
      const snapshot = isPending(claim) ? restoredSnapshot(claim) : undefined;
      if (snapshot !== undefined) restored.add(snapshot);
    }
    return restored;
  }

  sharedHandles(): HandleSharers {
    return new Map();
  }

  stop(): void {
    this.#hinted.onStop();
    void this.waited.stop();
  }
}

function sameObject<T extends Claim | Volume>(
  remembered: Remembered<T> | undefined,
  { metadata }: T,
): Remembered<T> | undefined {
  return remembered?.object.metadata.uid === metadata.uid ? remembered : undefined;
}
