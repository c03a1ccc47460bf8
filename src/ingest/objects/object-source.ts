import type { KubeClient } from '../../kube/client.ts';
import type { ListWatchOptions } from '../../kube/list-watch.ts';
import type { Claim, Class, Volume } from '../../kube/objects.ts';
import { type Change, type Reflector, startReflector, Store } from '../../kube/reflector.ts';
import { claims, classes, volumes } from '../../kube/resources.ts';
import { unlessAborted } from '../../runtime/clock.ts';
import { Listeners } from '../../runtime/listeners.ts';
import type { Logger } from '../../runtime/log.ts';
import type { Registry } from '../../runtime/metrics.ts';
import { isPending, isTerminatingCloneSource } from '../../volumes/data-source.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import type { ChangeNotice } from '../../webhooks/notices.ts';
import type { EventHandler } from './event-handler.ts';
import {
  transformClass,
  transformVolume,
  transformWatchedClaim,
  type WatchedClaim,
} from './transforms.ts';

/** The last known state of objects that may not be done. */
export interface Unfinished {
  readonly claims: Iterable<Claim>;
  readonly volumes: Iterable<Volume>;
}

/** An object that a notice named, and what ingest read. */
export interface Look {
  readonly target: ChangeNotice;
  /** As the API server sent it; undefined: it does not exist, or not yet. */
  readonly object: unknown;
}

export interface SourceOptions {
  readonly client: KubeClient;
  readonly log: Logger;
  readonly metrics: Registry;
  /** See ListWatchOptions. */
  readonly backoff?: NonNullable<ListWatchOptions['backoff']>;
}

/** Where this process learns of claims, classes and volumes; one instance serves all drivers. It
 * watches classes, which are few; subclasses get the claims and volumes. */
export abstract class ObjectSource {
  /** Notified when changes may have been missed, so that a resync is needed. */
  readonly missed = new Listeners<void>();
  /** All classes, with their parameters. */
  protected readonly classWatch: Reflector<Class>;
  /** Claims and volumes that may need a job now, or when another object changes. Nothing is kept of
   * the others (nearly all), because they need no job until they change. */
  protected readonly pendingClaims: Store<WatchedClaim>;
  protected readonly pendingVolumes: Store<Volume>;
  protected readonly log: Logger;
  /** To be called when a class has changed, by the handler of each driver that is served. */
  readonly #drivers = new Map<EventHandler, () => void>();

  /** @param isTold  whether the handlers get an object that was added or modified */
  constructor(options: SourceOptions, isTold: (change: Change<unknown>) => boolean) {
    const { log } = options;
    this.log = log;
    this.pendingClaims = new Store({
      resource: claims,
      transform: transformWatchedClaim,
      isKept: mayClaimNeedJob,
      onChange: (change) => {
        const { type, object, previous } = change;
        if (type !== 'deleted' && isTold(change))
          this.tell((handler) => handler.claimChanged(object, previous, type));
      },
      log,
    });
    this.pendingVolumes = new Store({
      resource: volumes,
      transform: transformVolume,
      isKept: (volume) =>
        [...this.#drivers.keys()].some((handler) => handler.keyOfVolume(volume) !== undefined),
      onChange: (change) => {
        const { type, object, previous } = change;
        if (type !== 'deleted' && isTold(change))
          this.tell((handler) => handler.volumeChanged(object, previous, type));
      },
      log,
    });
    this.classWatch = startReflector<Class>({
      ...options,
      resource: classes,
      transform: transformClass,
      onChange: (change) => this.#classChanged(change),
    });
  }

  /** Begins to serve a driver, at any time.
   * @param handler  gets each change of a claim or volume that may concern a job
   * @param onClassChange  called when a class was added, modified or deleted
   * @returns  `waitForSync` resolves when everything that concerns the driver is known, or when the
   *   signal aborts; `stop` ends serving it */
  serve(handler: EventHandler, onClassChange: () => void) {
    this.#drivers.set(handler, onClassChange);
    return {
      waitForSync: async (signal: AbortSignal): Promise<void> => {
        await unlessAborted(this.classWatch.waitForSync(), signal);
      },
      stop: () => void this.#drivers.delete(handler),
    };
  }

  /** Whether this process leads one of the drivers. */
  get isLeading(): boolean {
    return [...this.#drivers.keys()].some(({ queue }) => queue.isAllowing);
  }

  classes(): Iterable<Class> {
    return this.classWatch.list();
  }

  classOf(name: string): Class | undefined {
    return this.classWatch.get(name);
  }

  /** The objects in memory. */
  unfinished(): Unfinished {
    return { claims: this.pendingClaims.list(), volumes: this.pendingVolumes.list() };
  }

  /** Whether a claim is known to have a volume. */
  abstract hasVolume(claimUid: string): boolean;

  /** The claims that may need a job, and perhaps others; one may come twice.
   * @param isWanted  asked before each request to the API server
   * @throws Error when `isWanted` returns false */
  abstract claims(isWanted: () => boolean): AsyncIterable<Claim>;

  /** As `claims`, for volumes. */
  abstract volumes(isWanted: () => boolean): AsyncIterable<Volume>;

  /** Passes on an object that a notice named. */
  abstract looked(look: Look): void;

  /** For /readyz: why the objects in memory are incomplete or out of date. */
  abstract get trouble(): string | undefined;

  async stop(): Promise<void> {
    await this.classWatch.stop();
  }

  protected tell(call: (handler: EventHandler) => void): void {
    for (const handler of this.#drivers.keys()) call(handler);
  }

  /** Enqueues the claims of an added class, because it may end the cause of their failures. */
  #classChanged({ previous, object: { metadata } }: Change<Class>): void {
    for (const onClassChange of this.#drivers.values()) onClassChange();
    if (previous !== undefined) return;
    for (const claim of this.pendingClaims.list())
      if (classNameOf(claim) === metadata.name)
        this.tell((handler) => handler.enqueueClaim(claim, 'enqueueNow'));
  }
}

/** Whether a claim may need a job now, or when another object changes. A claim that names its
 * volume needs a job only if it has the finalizer of a clone source, which a job removes. */
function mayClaimNeedJob(claim: Claim): boolean {
  return (
    (claim.spec.volumeName ?? '') === '' || isPending(claim) || isTerminatingCloneSource(claim)
  );
}
