import { performance } from 'node:perf_hooks';
import { type KubeClient, listPages } from '../../kube/client.ts';
import type { Claim, Class, Volume } from '../../kube/objects.ts';
import { type Change, type Reflector, startReflector } from '../../kube/reflector.ts';
import { claims, classes, type Resource, volumes } from '../../kube/resources.ts';
import { backoffMs, systemClock, unlessAborted } from '../../runtime/clock.ts';
import { messageOf } from '../../runtime/error-message.ts';
import type { Logger } from '../../runtime/log.ts';
import type { Registry } from '../../runtime/metrics.ts';
import { isPending } from '../../volumes/data-source.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import type {
  Look,
  ObjectSource,
  ServedDriver,
  ServedDrivers,
  Unfinished,
} from '../objects/object-source.ts';
import { PendingCache } from '../objects/pending-cache.ts';
import { transformClass, transformVolume, transformWatchedClaim } from '../objects/transforms.ts';

export interface WebhookSourceOptions {
  readonly client: KubeClient;
  readonly drivers: ServedDrivers;
  readonly log: Logger;
  readonly metrics: Registry;
}

const PAGE_TIMEOUT_MS = 60_000;
/** Pause after the first list that failed; doubled with each further one. */
const RETRY = { startMs: 1_000, maxMs: 30_000 };
/** Longest pause after a page. */
const MAX_PAUSE_MS = 2_000;

/** Claims and volumes without a watch of them: notices say which of them to look at, and a resync
 * lists all of them in pages. Of those that are unfinished (claims that are pending or being
 * deleted, volumes that are not bound) the last state is kept, to tell what waits and what a user
 * has edited since. Classes, which are few, are watched (docs/decisions/0010). */
export class WebhookSource implements ObjectSource {
  readonly #options: WebhookSourceOptions;
  readonly #stopped = new AbortController();
  readonly #classes: Reflector<Class>;
  readonly #claims: PendingCache<Claim>;
  readonly #volumes: PendingCache<Volume>;
  #listTrouble: string | undefined;

  constructor(options: WebhookSourceOptions) {
    const { drivers, log } = options;
    this.#options = options;
    this.#classes = startReflector<Class>({
      ...options,
      resource: classes,
      transform: transformClass,
      onChange: (change) => this.#classChanged(change),
    });
    this.#claims = new PendingCache<Claim>({
      resource: claims,
      transform: transformWatchedClaim,
      mayNeedJob: (claim) => isPending(claim) || claim.metadata.deletionTimestamp !== undefined,
      onChange: ({ object, previous }) => {
        if (previous !== undefined)
          drivers.each(({ handler }) => handler.claimChanged(object, previous));
      },
      log,
    });
    this.#volumes = new PendingCache<Volume>({
      resource: volumes,
      transform: transformVolume,
      mayNeedJob: (volume) =>
        volume.status?.phase !== 'Bound' ||
        drivers.some(({ handler }) => handler.keyOfVolume(volume) !== undefined),
      onChange: ({ object, previous }) => {
        if (previous !== undefined)
          drivers.each(({ handler }) => handler.volumeChanged(object, previous));
      },
      log,
    });
  }

  get trouble(): string | undefined {
    return this.#classes.trouble ?? this.#listTrouble;
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

  /** Passes an object on that was read because a notice named it. One that does not exist counts as
   * not stored yet. */
  looked({ target, object: raw }: Look): void {
    const { drivers } = this.#options;
    const isClaim = target.resource === claims.plural;
    if (raw === undefined)
      return (isClaim ? this.#claims : this.#volumes).remove({ metadata: target });
    if (isClaim) {
      const claim = this.#claims.put(raw, 'added');
      if (claim !== undefined)
        drivers.each(({ handler }) => handler.enqueueClaim(claim, 'ensureQueued'));
    } else {
      const volume = this.#volumes.put(raw, 'added');
      if (volume !== undefined)
        drivers.each(({ handler }) => handler.enqueueVolume(volume, 'ensureQueued'));
    }
  }

  claims(isWanted: () => boolean): AsyncGenerator<Claim> {
    return this.#list(claims, this.#claims, isWanted);
  }

  volumes(isWanted: () => boolean): AsyncGenerator<Volume> {
    return this.#list(volumes, this.#volumes, isWanted);
  }

  unfinished(): Unfinished {
    return { claims: this.#claims.list(), volumes: this.#volumes.list() };
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#classes.stop();
  }

  /** All objects. What needs a job is left to the caller, which may have to spread the keys; edits
   * are passed on. A list that fails begins again until it is complete, so objects may come twice.
   * @throws Error when nobody wants it any more */
  async *#list<T extends Claim | Volume>(
    resource: Resource,
    cache: PendingCache<T>,
    isWanted: () => boolean,
  ): AsyncGenerator<T> {
    const { signal } = this.#stopped;
    const checkWanted = (): void => {
      if (!isWanted() || signal.aborted)
        throw new Error(`the list of ${resource.plural} ended early: this process does not lead`);
    };
    for (let failures = 1; ; failures += 1) {
      checkWanted();
      try {
        return yield* this.#listOnce(resource, cache, checkWanted);
      } catch (error) {
        checkWanted();
        this.#listTrouble = `${resource.plural}: ${messageOf(error)}`;
        if (failures === 1)
          this.#options.log.warn({ error: this.#listTrouble }, 'could not list; trying again');
        await systemClock.sleep(backoffMs(RETRY, failures), signal);
      } finally {
        if (!isWanted()) this.#listTrouble = undefined;
      }
    }
  }

  /** Lists in pages, with a pause after each as long as it took. */
  async *#listOnce<T extends Claim | Volume>(
    resource: Resource,
    cache: PendingCache<T>,
    checkWanted: () => void,
  ): AsyncGenerator<T, void> {
    const { signal } = this.#stopped;
    const o = { signal, timeoutMs: PAGE_TIMEOUT_MS };
    let startedMs = performance.now();
    cache.beginList();
    for await (const { items } of listPages<unknown>(this.#options.client, resource, o)) {
      yield* items.flatMap((raw) => cache.put(raw, 'listed') ?? []);
      checkWanted();
      await systemClock.sleep(Math.min(performance.now() - startedMs, MAX_PAUSE_MS), signal);
      startedMs = performance.now();
    }
    cache.endList();
    this.#listTrouble = undefined;
  }

  /** A class that was added, or deleted and created again, may end the cause of its claims'
   * failures. */
  #classChanged({ type, object: { metadata } }: Change<Class>): void {
    const { drivers } = this.#options;
    drivers.each(({ onClassChange }) => onClassChange?.());
    if (type !== 'added') return;
    for (const claim of this.#claims.list())
      if (classNameOf(claim) === metadata.name)
        drivers.each(({ handler }) => handler.enqueueClaim(claim, 'enqueueNow'));
  }
}
