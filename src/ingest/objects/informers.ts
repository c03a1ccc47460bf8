import { performance } from 'node:perf_hooks';
import { ListWatch, type ObjectSink } from '../../kube/list-watch.ts';
import type { Claim, ObjectMeta, Volume } from '../../kube/objects.ts';
import { claims, keyOf, rawKey, versionOf, volumes } from '../../kube/resources.ts';
import { unlessAborted } from '../../runtime/clock.ts';
import { Listeners } from '../../runtime/listeners.ts';
import type { EventHandler } from './event-handler.ts';
import { type Look, ObjectSource, type SourceOptions } from './object-source.ts';
import { transformClaim, transformVolume } from './transforms.ts';
import { defaultNameOf, VolumeIndex } from './volume-index.ts';

/** How long ago a watch may have brought something whose claims count as fresh. */
const MAX_SILENCE_MS = 5_000;
/** How long a list of volumes waits for further drivers. */
const GATHER_MS = 200;

/** Lists and watches claims, classes and volumes, for all drivers. Keeps those that may need a job,
 * and little of the others (docs/decisions/0011). */
export class Informers extends ObjectSource {
  /** Notified when it changed which PVs share a handle. */
  readonly sharing = new Listeners<void>();
  readonly #volumeIndex = new VolumeIndex();
  readonly #claimWatch: ListWatch;
  readonly #volumeWatch: ListWatch;
  /** What to call when a list of volumes is complete that has yet to begin. */
  #unlisted: (() => void)[] = [];
  /** What to call when the list of volumes under way is complete. */
  #listing: (() => void)[] = [];

  constructor(options: SourceOptions) {
    super(options, () => true);
    this.#claimWatch = new ListWatch({ ...options, resource: claims }, this.pendingClaims);
    this.#volumeWatch = new ListWatch({ ...options, resource: volumes }, this.#volumeSink());
  }

  get trouble(): string | undefined {
    return this.#watches.find(({ trouble }) => trouble !== undefined)?.trouble;
  }

  /** Lists the volumes again, unless a list has yet to begin: of those of this driver, too little
   * was kept. Drivers that come within a moment share one list. */
  override serve(handler: EventHandler, onClassChange: () => void) {
    const listed = new Promise<void>((resolve) => {
      if (this.#unlisted.push(resolve) === 1) setTimeout(() => this.#relist(), GATHER_MS).unref();
    });
    const serving = super.serve(handler, onClassChange);
    return {
      ...serving,
      waitForSync: async (signal: AbortSignal): Promise<void> => {
        const synced = this.#watches.map((watch) => watch.waitForSync());
        await unlessAborted(Promise.all([...synced, listed]), signal);
      },
    };
  }

  hasVolume(claimUid: string): boolean {
    return this.#volumeIndex.has(defaultNameOf(claimUid));
  }

  // oxlint-disable-next-line typescript/require-await -- the other source reads pages here
  async *claims(): AsyncGenerator<Claim> {
    yield* this.pendingClaims.list();
  }

  // oxlint-disable-next-line typescript/require-await -- as above
  async *volumes(): AsyncGenerator<Volume> {
    yield* this.pendingVolumes.list();
  }

  /** Whether changes of PVs arrive at once, so that `sharedHandles` misses none. */
  get isFollowingVolumes(): boolean {
    return this.#volumeWatch.isFollowing;
  }

  /** A claim without a source as the watch shows it, if that has brought something within the last
   * 5 s: for the first run of its job, in this process. */
  freshClaim(key: Pick<ObjectMeta, 'uid' | 'namespace' | 'name'>): Claim | undefined {
    const heardMs = this.#claimWatch.heardMs;
    if (heardMs === undefined || performance.now() - heardMs > MAX_SILENCE_MS) return undefined;
    const known = this.pendingClaims.get(keyOf(key));
    if (known?.metadata.uid !== key.uid || known.copy === undefined) return undefined;
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
    const cache = isClaim ? this.pendingClaims : this.pendingVolumes;
    if (cache.get(keyOf(target))?.metadata.resourceVersion === versionOf(raw)) return;
    this.tell((handler) => {
      if (isClaim) handler.enqueueClaim(transformClaim(raw), 'ensureQueued');
      else handler.enqueueVolume(transformVolume(raw), 'ensureQueued');
    });
  }

  override async stop(): Promise<void> {
    await Promise.all(this.#watches.map((watch) => watch.stop()));
  }

  #relist(): void {
    if (this.#unlisted.length > 0) this.#volumeWatch.relist();
  }

  get #watches() {
    return [this.classWatch, this.#claimWatch, this.#volumeWatch];
  }

  /** Every volume goes into the index, whether it is kept or not. */
  #volumeSink(): ObjectSink {
    const cache = this.pendingVolumes;
    const index = this.#volumeIndex;
    return {
      get size() {
        return cache.size;
      },
      beginList: () => {
        this.#listing.push(...this.#unlisted.splice(0));
        index.beginList();
        cache.beginList();
      },
      put: (raw, how) => {
        const volume = cache.put(raw, how);
        if (volume !== undefined && index.put(volume)) this.sharing.notify();
      },
      remove: (raw) => {
        cache.remove(raw);
        const name = rawKey(raw);
        if (name !== undefined) this.#forget([name], raw as Partial<Volume>);
      },
      endList: () => {
        cache.endList();
        this.#forget(index.endList());
        for (const tell of this.#listing.splice(0)) tell();
      },
    };
  }

  /** A claim whose volume is deleted before the two are bound needs another volume. The claim of a
   * Released volume, as most deleted ones are, is gone.
   * @param volume  the last state of a single one; not known after a list */
  #forget(names: readonly string[], { spec, status }: Partial<Volume> = {}): void {
    const changesSharing = names.filter((name) => this.#volumeIndex.remove(name)).length > 0;
    if (changesSharing) this.sharing.notify();
    if (names.length === 0 || status?.phase === 'Released') return;
    const gone = new Set(names);
    for (const claim of this.pendingClaims.list()) {
      const { uid } = claim.metadata;
      if (uid === spec?.claimRef?.uid || gone.has(defaultNameOf(uid)))
        this.tell((handler) => handler.enqueueClaim(claim, 'ensureQueued'));
    }
  }
}
