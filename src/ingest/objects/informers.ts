import { performance } from 'node:perf_hooks';
import type { KubeClient } from '../../kube/client.ts';
import { ListWatch, type ListWatchOptions } from '../../kube/list-watch.ts';
import type { Claim, Class, Volume } from '../../kube/objects.ts';
import { type Change, type Reflector, startReflector } from '../../kube/reflector.ts';
import { claims, classes, keyOf, versionOf, volumes } from '../../kube/resources.ts';
import type { JobKey } from '../../queue/contract.ts';
import { unlessAborted } from '../../runtime/clock.ts';
import type { Logger } from '../../runtime/log.ts';
import type { Registry } from '../../runtime/metrics.ts';
import { shouldDelete } from '../../volumes/deletion.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import { isPending, isTerminatingCloneSource } from '../../volumes/data-source.ts';
import type {
  Look,
  ObjectSource,
  ServedDriver,
  ServedDrivers,
  Unfinished,
} from './object-source.ts';
import { type Observer, PendingCache } from './pending-cache.ts';
import {
  transformClaim,
  transformClass,
  transformVolume,
  transformWatchedClaim,
  type WatchedClaim,
} from './transforms.ts';
import { VolumeIndex } from './volume-index.ts';

export interface InformersOptions {
  readonly client: KubeClient;
  readonly drivers: ServedDrivers;
  /** Called when it changed which PVs share a handle. */
  readonly onSharing?: () => void;
  readonly log: Logger;
  readonly metrics: Registry;
  /** See ListWatchOptions. */
  readonly backoff?: NonNullable<ListWatchOptions['backoff']>;
}

/** How long ago a watch may have brought something whose claims count as fresh. */
const MAX_SILENCE_MS = 5_000;
/** Drivers that begin to be served within this time share a list. */
const RELIST_DELAY_MS = 200;

/** Lists and watches claims, classes and volumes, for all drivers. Keeps those that may need a job,
 * and little of the others (docs/decisions/0011). */
export class Informers implements ObjectSource {
  readonly #options: InformersOptions;
  readonly #classes: Reflector<Class>;
  readonly #pendingClaims: PendingCache<WatchedClaim>;
  readonly #pendingVolumes: PendingCache<Volume>;
  readonly #volumeIndex = new VolumeIndex();
  readonly #claimWatch: ListWatch;
  readonly #volumeWatch: ListWatch;
  /** What to call when a list of volumes is complete that was begun with the driver in mind. */
  readonly #unlisted = new Map<ServedDriver, () => void>();
  /** What to call when the list of volumes under way is complete; undefined: none has begun yet. */
  #onListed: readonly (() => void)[] | undefined;
  #relist: NodeJS.Timeout | undefined;

  constructor(options: InformersOptions) {
    const { log } = options;
    this.#options = options;
    this.#pendingClaims = new PendingCache<WatchedClaim>({
      resource: claims,
      transform: transformWatchedClaim,
      mayNeedJob: mayClaimNeedJob,
      onChange: ({ object, previous, isModified }) =>
        this.#options.drivers.each(({ handler }) =>
          handler.claimChanged(object, previous, isModified),
        ),
      log,
    });
    this.#pendingVolumes = new PendingCache<Volume>({
      resource: volumes,
      transform: transformVolume,
      mayNeedJob: (volume) =>
        options.drivers.some(
          ({ handler }) => shouldDelete(volume, handler.driver).kind !== 'ignore',
        ),
      observer: this.#volumeObserver(),
      onChange: ({ object, previous, isModified }) =>
        this.#options.drivers.each(({ handler }) =>
          handler.volumeChanged(object, previous, isModified),
        ),
      log,
    });
    this.#classes = startReflector<Class>({
      ...options,
      resource: classes,
      transform: transformClass,
      onChange: (change) => this.#classChanged(change),
    });
    this.#claimWatch = new ListWatch({ ...options, resource: claims }, this.#pendingClaims);
    this.#volumeWatch = new ListWatch({ ...options, resource: volumes }, this.#pendingVolumes);
  }

  get trouble(): string | undefined {
    return this.#watches.find(({ trouble }) => trouble !== undefined)?.trouble;
  }

  serve(driver: ServedDriver) {
    const { drivers } = this.#options;
    const listed = new Promise<void>((resolve) => this.#unlisted.set(driver, resolve));
    drivers.add(driver);
    // Of the PVs of this driver, too little was kept.
    if (this.#onListed !== undefined)
      this.#relist ??= setTimeout(() => {
        this.#relist = undefined;
        this.#volumeWatch.relist();
      }, RELIST_DELAY_MS);
    return {
      waitForSync: async (signal: AbortSignal): Promise<void> => {
        const synced = this.#watches.map((watch) => watch.waitForSync());
        await unlessAborted(Promise.all([...synced, listed]), signal);
      },
      stop: () => {
        drivers.delete(driver);
        this.#unlisted.delete(driver);
      },
    };
  }

  classes(): Iterable<Class> {
    return this.#classes.list();
  }

  classOf(name: string): Class | undefined {
    return this.#classes.get(name);
  }

  hasVolume(claimUid: string): boolean {
    return this.#volumeIndex.hasVolume(claimUid);
  }

  // oxlint-disable-next-line typescript/require-await -- the other source reads pages here
  async *claims(): AsyncGenerator<Claim> {
    yield* this.#pendingClaims.list();
  }

  // oxlint-disable-next-line typescript/require-await -- as above
  async *volumes(): AsyncGenerator<Volume> {
    yield* this.#pendingVolumes.list();
  }

  unfinished(): Unfinished {
    return { claims: this.#pendingClaims.list(), volumes: this.#pendingVolumes.list() };
  }

  /** Whether changes of PVs arrive at once, so that `sharedHandles` misses none. */
  get isFollowingVolumes(): boolean {
    return this.#volumeWatch.isFollowing;
  }

  /** A claim without a source as the watch shows it, if that has brought something within the last
   * 5 s: for the first run of its job, in this process. */
  freshClaim({
    namespace,
    name,
    uid,
  }: Pick<JobKey, 'namespace' | 'name' | 'uid'>): Claim | undefined {
    const heardMs = this.#claimWatch.heardMs;
    if (heardMs === undefined || performance.now() - heardMs > MAX_SILENCE_MS) return undefined;
    const known = this.#pendingClaims.get(keyOf({ namespace, name }));
    if (known?.metadata.uid !== uid || known.copy === undefined) return undefined;
    const { dataSource, dataSourceRef } = known.spec;
    return dataSource || dataSourceRef ? undefined : (JSON.parse(known.copy) as Claim);
  }

  /** The names of the PVs by each handle, as its hash, that several of them may have. */
  sharedHandles(): ReadonlyMap<number, readonly string[]> {
    return this.#volumeIndex.sharedHandles();
  }

  /** A claim or volume was read because a change notice named it (--event-source=both). What the
   * watch has not reported yet is enqueued at once if it needs a job, as while a watch hangs. What
   * a change means for a delayed job is left to the watch. */
  looked({ target, object: raw }: Look): void {
    if (raw === undefined) return;
    const isClaim = target.resource === claims.plural;
    const cache = isClaim ? this.#pendingClaims : this.#pendingVolumes;
    if (cache.get(keyOf(target))?.metadata.resourceVersion === versionOf(raw)) return;
    this.#options.drivers.each(({ handler }) => {
      if (isClaim) handler.enqueueClaim(transformClaim(raw), 'ensureQueued');
      else handler.enqueueVolume(transformVolume(raw), 'ensureQueued');
    });
  }

  async stop(): Promise<void> {
    clearTimeout(this.#relist);
    await Promise.all(this.#watches.map((watch) => watch.stop()));
  }

  get #watches() {
    return [this.#classes, this.#claimWatch, this.#volumeWatch];
  }

  #volumeObserver(): Observer<Volume> {
    return {
      beginList: () => {
        this.#onListed = [...this.#unlisted.values()];
        this.#volumeIndex.beginList();
      },
      put: (volume) => {
        if (this.#volumeIndex.put(volume)) this.#options.onSharing?.();
      },
      remove: (name, raw) => {
        this.#removeVolumes([name], (raw as Volume | undefined)?.status?.phase);
      },
      endList: () => {
        this.#removeVolumes(this.#volumeIndex.endList());
        for (const tell of this.#onListed ?? []) tell();
      },
    };
  }

  /** A claim whose volume is deleted before the two are bound needs another volume. The claim of a
   * Released volume, as most deleted ones are, is gone. */
  #removeVolumes(names: readonly string[], phase?: string): void {
    const removed = names.map((name) => this.#volumeIndex.remove(name));
    if (removed.some(({ changesSharing }) => changesSharing)) this.#options.onSharing?.();
    const uids = new Set(removed.flatMap(({ claimUids }) => claimUids));
    if (phase === 'Released' || uids.size === 0) return;
    for (const claim of this.#pendingClaims.list())
      if (uids.has(claim.metadata.uid))
        this.#options.drivers.each(({ handler }) => handler.enqueueClaim(claim, 'ensureQueued'));
  }

  /** A class that was added, or deleted and created again, may end the cause of its claims'
   * failures. */
  #classChanged({ type, object: { metadata } }: Change<Class>): void {
    this.#options.drivers.each(({ onClassChange }) => onClassChange?.());
    if (type !== 'added') return;
    for (const claim of this.#pendingClaims.list())
      if (classNameOf(claim) === metadata.name)
        this.#options.drivers.each(({ handler }) => handler.enqueueClaim(claim, 'enqueueNow'));
  }
}

/** Whether a claim may need a job as it is, or because another object changes. One that names its
 * volume needs one only if it has the finalizer of a clone source, which a job removes. */
function mayClaimNeedJob(claim: Claim): boolean {
  return (
    (claim.spec.volumeName ?? '') === '' || isPending(claim) || isTerminatingCloneSource(claim)
  );
}
