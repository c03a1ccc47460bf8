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

/** Claims count as fresh if their watch has sent something within this time. */
const MAX_SILENCE_MS = 5_000;
/** How long a list of volumes waits for further drivers. */
const GATHER_MS = 200;

/** Lists and watches claims, classes and volumes, for all drivers. Keeps those that may need a job,
 * and little of the others (docs/decisions/0011). */
export class Informers extends ObjectSource {
  /** Notified when the set of PVs that share a handle has changed. */
  readonly sharing = new Listeners<void>();
  readonly #volumeIndex = new VolumeIndex();
  readonly #claimWatch: ListWatch;
  readonly #volumeWatch: ListWatch;
  /** To be called at the end of the next list of volumes, which has not begun. */
  #unlisted: (() => void)[] = [];
  /** To be called at the end of the list of volumes that is under way. */
  #listing: (() => void)[] = [];

  constructor(options: SourceOptions) {
    super(options, () => true);
    this.#claimWatch = new ListWatch({ ...options, resource: claims }, this.pendingClaims);
    this.#volumeWatch = new ListWatch({ ...options, resource: volumes }, this.#volumeSink());
  }

  get trouble(): string | undefined {
    return this.#watches.find(({ trouble }) => trouble !== undefined)?.trouble;
  }

  /** Lists the volumes again, because of this driver's volumes only names and hashes were kept.
   * Drivers that start within 200 ms share one list. */
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

  /** The watch's copy of a claim without a data source, if the watch has sent something within the
   * last 5 s. The first run of the claim's job uses it if jobs runs in this process. */
  freshClaim(key: Pick<ObjectMeta, 'uid' | 'namespace' | 'name'>): Claim | undefined {
    const heardMs = this.#claimWatch.heardMs;
    if (heardMs === undefined || performance.now() - heardMs > MAX_SILENCE_MS) return undefined;
    const known = this.pendingClaims.get(keyOf(key));
    if (known?.metadata.uid !== key.uid || known.copy === undefined) return undefined;
    const { dataSource, dataSourceRef } = known.spec;
    return dataSource || dataSourceRef ? undefined : (JSON.parse(known.copy) as Claim);
  }

  /** The names of the PVs that may share a handle, by the handle's hash. */
  sharedHandles(): ReadonlyMap<number, readonly string[]> {
    return this.#volumeIndex.sharedHandles();
  }

  /** Enqueues an object that a notice named (--event-source=both) if it needs a job and the watch
   * has not reported it yet, for example because the watch hangs. Leaves delayed jobs to the
   * watch. */
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

  /** Puts every volume into the index, also those that the cache does not keep. */
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

  /** Removes deleted volumes from the index. Enqueues their claims that were not bound, which need
   * other volumes; a Released volume, as most deleted ones are, has no claim.
   * @param volume  the last state of a single deleted volume; not known after a list */
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
