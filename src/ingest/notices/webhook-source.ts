import QuickLRU from 'quick-lru';
import type { KubeClient } from '../../kube/client.ts';
import type { Claim, Class, Volume } from '../../kube/objects.ts';
import { type Change, type Reflector, startReflector } from '../../kube/reflector.ts';
import { claims, classes, keyOf, volumes } from '../../kube/resources.ts';
import { unlessAborted } from '../../runtime/clock.ts';
import { messageOf } from '../../runtime/error-message.ts';
import type { Logger } from '../../runtime/log.ts';
import type { Registry } from '../../runtime/metrics.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import { isPending } from '../../volumes/data-source.ts';
import type {
  ObjectSource,
  ServedDriver,
  ServedDrivers,
  Unfinished,
} from '../objects/object-source.ts';
import { transformClass, transformNoticedClaim, transformVolume } from '../objects/transforms.ts';
import type { Look } from './look-queue.ts';
import { type Listing, type PacedLists, Unwanted } from './paced-lists.ts';

export interface WebhookSourceOptions {
  readonly client: KubeClient;
  readonly lists: PacedLists;
  readonly drivers: ServedDrivers;
  /** Resolves when notices that are sent from now on are read, or when the signal aborts. A list
   * begins after that, so that no change falls between the two. */
  readonly waitUntilReading: (signal: AbortSignal) => Promise<void>;
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

/** Claims and volumes without a watch of them and without a cache: notices say which of them to
 * look at, and a resync lists all of them in pages, of which nothing is kept. Classes, which are
 * few, are watched (docs/decisions/0010).
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

  get trouble(): string | undefined {
    return this.#classes.trouble ?? this.#options.lists.trouble;
  }

  serve(driver: ServedDriver) {
    const { drivers } = this.#options;
    drivers.add(driver);
    return {
      waitForSync: async (signal: AbortSignal): Promise<void> => {
        await unlessAborted(this.#classes.waitForSync(), signal);
      },
      stop: () => drivers.delete(driver),
    };
  }

  classes(): Iterable<Class> {
    return this.#classes.list();
  }

  classOf(name: string): Class | undefined {
    return this.#classes.get(name);
  }

  /** That is left to the job, which reads the volume of the claim. */
  hasVolume(): boolean {
    return false;
  }

  /** Offers an object that was read because a notice named it to all drivers. One that does not
   * exist counts as not stored yet: nothing follows from it. */
  looked({ target, object }: Look): void {
    const isClaim = target.resource === claims.plural;
    if (object === undefined) {
      (isClaim ? this.#claims : this.#volumes).delete(keyOf(target));
      return;
    }
    try {
      if (isClaim) this.#offerClaim(transformNoticedClaim(object), true);
      else this.#offerVolume(transformVolume(object), true);
    } catch (error) {
      this.#options.log.error(
        { ...target, error: messageOf(error) },
        'object skipped: not readable',
      );
    }
  }

  /** Lists all claims. Objects that have changed since they were seen last are offered to all
   * drivers. */
  claims(isWanted: () => boolean): AsyncGenerator<Claim> {
    const listing = { resource: claims, transform: transformNoticedClaim, isWanted };
    return this.#list(listing, this.#claims, (claim) => this.#offerClaim(claim, false));
  }

  /** Lists all volumes, as `claims` does claims. */
  volumes(isWanted: () => boolean): AsyncGenerator<Volume> {
    const listing = { resource: volumes, transform: transformVolume, isWanted };
    return this.#list(listing, this.#volumes, (volume) => this.#offerVolume(volume, false));
  }

  unfinished(): Unfinished {
    return {
      claims: [...this.#claims.values()].map(({ object }) => object),
      volumes: [...this.#volumes.values()].map(({ object }) => object),
    };
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    this.#options.lists.stop();
    await this.#classes.stop();
  }

  async *#list<T>(
    listing: Listing<T>,
    known: QuickLRU<string, Remembered<T>>,
    offer: (object: T) => void,
  ): AsyncGenerator<T> {
    await this.#options.waitUntilReading(this.#stopped.signal);
    const before = [...known];
    for await (const page of this.#options.lists.pages(listing))
      for (const object of page) {
        offer(object);
        yield object;
      }
    // What was not seen again does not exist any more.
    for (const [key, seen] of before) if (known.peek(key) === seen) known.delete(key);
  }

  /** @param isLook  whether a claim is offered too that no look has offered yet; a list leaves that
   *   to the resync, which may have to spread the keys */
  #offerClaim(claim: Claim, isLook: boolean): void {
    const { previous, isNew } = remember(this.#claims, claim, {
      isLook,
      isUnfinished: isPending(claim) || claim.metadata.deletionTimestamp !== undefined,
    });
    this.#options.drivers.each(({ handler }) => {
      if (isNew) handler.enqueueClaim(claim, 'ensureQueued');
      if (previous !== undefined) handler.claimChanged(claim, previous);
    });
  }

  /** See #offerClaim. */
  #offerVolume(volume: Volume, isLook: boolean): void {
    const { drivers } = this.#options;
    const { previous, isNew } = remember(this.#volumes, volume, {
      isLook,
      isUnfinished:
        volume.status?.phase !== 'Bound' ||
        drivers.some(({ handler }) => handler.keyOfVolume(volume) !== undefined),
    });
    drivers.each(({ handler }) => {
      if (isNew) handler.enqueueVolume(volume, 'ensureQueued');
      if (previous !== undefined) handler.volumeChanged(volume, previous);
    });
  }

  /** A class that was added, or deleted and created again, may end the cause of its claims'
   * failures. Those of the first list concern nobody: the resync of a new leader comes after it. */
  #classChanged({ type, object: { metadata } }: Change<Class>): void {
    const { drivers } = this.#options;
    drivers.each(({ onClassChange }) => onClassChange?.());
    if (type !== 'added' || !this.#classes.hasSynced || !drivers.isLeading) return;
    this.#addedClasses.add(metadata.name);
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
    const { drivers } = this.#options;
    for await (const claim of this.claims(() => drivers.isLeading))
      if (classNames.has(classNameOf(claim)))
        drivers.each(({ handler }) => handler.enqueueClaim(claim, 'enqueueNow'));
  }
}

/** Remembers an unfinished object, and forgets one that is finished.
 * @returns  `previous`: the same object as it was seen last; `isNew`: whether this is the first
 *   look at it */
function remember<T extends Claim | Volume>(
  known: QuickLRU<string, Remembered<T>>,
  object: T,
  { isLook, isUnfinished }: { readonly isLook: boolean; readonly isUnfinished: boolean },
): { readonly previous?: T; readonly isNew: boolean } {
  const { uid } = object.metadata;
  const key = keyOf(object.metadata);
  const found = known.get(key);
  const before = found?.object.metadata.uid === uid ? found : undefined;
  const wasOffered = before?.isOffered ?? false;
  if (isUnfinished) known.set(key, { object, isOffered: wasOffered || isLook });
  else known.delete(key);
  const isNew = isLook && !wasOffered;
  return before === undefined ? { isNew } : { previous: before.object, isNew };
}
