import type { KubeClient } from '../../kube/client.ts';
import { ListWatch, type ListWatchOptions } from '../../kube/list-watch.ts';
import type { Claim, Class, Volume } from '../../kube/objects.ts';
import { type Change, type Reflector, startReflector } from '../../kube/reflector.ts';
import { claims, classes, keyOf, type Resource, versionOf, volumes } from '../../kube/resources.ts';
import { objectId, parseObjectId } from '../../queue/dependency-index.ts';
import { unlessAborted } from '../../runtime/abort.ts';
import type { Logger } from '../../runtime/log.ts';
import type { Registry } from '../../runtime/metrics.ts';
import type { DriverNames } from '../../volumes/driver-facts.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import { FollowedVersions } from './followed-versions.ts';
import { PendingClaimCache, type KeptChange } from './pending-claim-cache.ts';
import { KeptVolumes } from './kept-volumes.ts';
import { ObjectReader } from './object-reader.ts';
import type { DriverObjects, ObjectSource, ServedDriver } from './object-source.ts';
import { transformClass } from './transforms.ts';
import { claimsOf } from './volume-index.ts';
import { WatchedDriver } from './watched-driver.ts';

export interface InformersOptions {
  readonly client: KubeClient;
  readonly log: Logger;
  readonly metrics: Registry;
  /** See ListWatchOptions. */
  readonly backoff?: NonNullable<ListWatchOptions['backoff']>;
}

/** Drivers that begin to be served within this time share a list. */
const RELIST_DELAY_MS = 200;

/** Lists and watches claims, classes and volumes, for all drivers. Keeps those that may need a job,
 * and little of the others. */
export class Informers implements ObjectSource {
  readonly classes: Reflector<Class>;
  readonly keptClaims: PendingClaimCache;
  readonly keptVolumes: KeptVolumes;
  readonly #options: InformersOptions;
  readonly #claims: ListWatch;
  readonly #volumes: ListWatch;
  readonly #claimReader: ObjectReader;
  readonly #volumeReader: ObjectReader;
  /** By the plural of the resource. */
  readonly #followed: ReadonlyMap<string, FollowedVersions>;
  readonly #drivers = new Set<WatchedDriver>();
  #relist: NodeJS.Timeout | undefined;

  constructor(options: InformersOptions) {
    this.#options = options;
    const { log } = options;
    this.#claimReader = this.#reader(claims, (key, raw) =>
      followedClaims.wasRead(key, versionOf(raw) ?? ''),
    );
    this.#volumeReader = this.#reader(volumes, (name, raw) => {
      this.keptVolumes.wasRead(name, raw);
      followedVolumes.wasRead(name, versionOf(raw) ?? '');
    });
    const followedClaims = this.#follow(claims, this.#claimReader);
    const followedVolumes = this.#follow(volumes, this.#volumeReader);
    this.#followed = new Map([
      [claims.plural, followedClaims],
      [volumes.plural, followedVolumes],
    ]);
    this.keptClaims = new PendingClaimCache({
      followed: followedClaims,
      onChange: (change) => this.#claimChanged(change),
      log,
    });
    this.keptVolumes = new KeptVolumes({
      drivers: () => this.#driverNames,
      followed: followedVolumes,
      read: (name) => this.#volumeReader.want(name),
      onChange: (change) => this.#volumeChanged(change),
      onHandleFreed: (volume) => this.#each((driver) => driver.volumeFreed(volume)),
      onSharing: () => this.#each(({ served }) => served.onSharedHandles?.()),
      onListed: (listed) => this.#volumesListed(listed),
      log,
    });
    this.classes = startReflector<Class>({
      ...options,
      resource: classes,
      transform: transformClass,
      onChange: (change) => this.#classChanged(change),
    });
    const streamed = { ...options, streamsList: true };
    this.#claims = new ListWatch({ ...streamed, resource: claims }, this.keptClaims);
    this.#volumes = new ListWatch({ ...streamed, resource: volumes }, this.keptVolumes);
  }

  async waitForSync(signal: AbortSignal): Promise<void> {
    const all = this.#watches.map((watch) => watch.waitForSync());
    await unlessAborted(Promise.all(all), signal);
  }

  get trouble(): string | undefined {
    return this.#watches.find(({ trouble }) => trouble !== undefined)?.trouble;
  }

  get isFollowingVolumes(): boolean {
    return this.#volumes.isFollowing;
  }

  serve(served: ServedDriver): DriverObjects {
    const driver = new WatchedDriver(served, this, this.#options.log);
    this.#drivers.add(driver);
    this.#driverNames = this.#namesOfDrivers();
    // Of the PVs of this driver, too little was kept.
    if (this.keptVolumes.hasListBegun)
      this.#relist ??= setTimeout(() => {
        this.#relist = undefined;
        this.#volumes.relist();
      }, RELIST_DELAY_MS);
    return driver;
  }

  /** Ends serving a driver. */
  leave(driver: WatchedDriver): void {
    this.#drivers.delete(driver);
    this.#driverNames = this.#namesOfDrivers();
    this.keptVolumes.driversChanged();
    this.followedChanged();
  }

  /** The objects changed that a driver follows. */
  followedChanged(): void {
    const keys = new Map([...this.#followed.keys()].map((plural) => [plural, new Set<string>()]));
    for (const { followed } of this.#drivers)
      for (const object of followed) {
        const { resource, namespace, name } = parseObjectId(object);
        keys.get(resource)?.add(keyOf({ namespace, name }));
      }
    for (const [plural, followed] of this.#followed)
      followed.follow(keys.get(plural) ?? new Set(), (key) => this.#keptVersion(plural, key));
  }

  /** See DriverObjects. */
  versionOf(object: string): string | undefined {
    const { resource, namespace, name } = parseObjectId(object);
    const key = keyOf({ namespace, name });
    if (resource === classes.plural) {
      if (!isCurrent(this.classes)) return undefined;
      return this.classes.get(key)?.metadata.resourceVersion ?? '';
    }
    const followed = this.#followed.get(resource);
    const watch = resource === claims.plural ? this.#claims : this.#volumes;
    if (followed === undefined || !isCurrent(watch)) return undefined;
    return followed.get(key) ?? this.#keptVersion(resource, key);
  }

  async stop(): Promise<void> {
    clearTimeout(this.#relist);
    await Promise.all(
      [...this.#watches, this.#claimReader, this.#volumeReader].map((each) => each.stop()),
    );
  }

  get #watches() {
    return [this.classes, this.#claims, this.#volumes];
  }

  #driverNames: readonly DriverNames[] = [];

  #namesOfDrivers(): readonly DriverNames[] {
    return [...this.#drivers].map(({ served }) => served.driver);
  }

  #each(call: (driver: WatchedDriver) => void): void {
    for (const driver of this.#drivers) call(driver);
  }

  #reader(resource: Resource, onRead: (key: string, raw: unknown) => void): ObjectReader {
    const { client, log } = this.#options;
    return new ObjectReader({ client, resource, onRead, log });
  }

  #follow({ plural }: Resource, reader: ObjectReader): FollowedVersions {
    return new FollowedVersions(
      (key) => reader.want(key),
      (key) => {
        const object = `${plural}/${key.includes('/') ? '' : '/'}${key}`;
        this.#each(({ served }) => served.onObject?.(object));
      },
    );
  }

  #keptVersion(plural: string, key: string): string | undefined {
    const object = plural === claims.plural ? this.keptClaims.get(key) : this.keptVolumes.get(key);
    return object?.metadata.resourceVersion;
  }

  /** A class that was added, or deleted and created again, may end the cause of its claims'
   * failures. */
  #classChanged({ type, object }: Change<Class>): void {
    const id = objectId({ resource: classes.plural, ...object.metadata });
    this.#each(({ served }) => served.onObject?.(id));
    if (type !== 'added') return;
    for (const claim of this.keptClaims.list())
      if (classNameOf(claim) === object.metadata.name)
        this.#each(({ triage }) => triage.enqueueClaim(claim, 'enqueueNow'));
  }

  /** A deleted claim needs no job: if its record is open, the record's key is in the queue. */
  #claimChanged({ type, object, previous, isModified }: KeptChange<Claim>): void {
    if (type === 'deleted') return;
    // It needed no job before, and an earlier one may still be delayed.
    if (isModified === true)
      return this.#each(({ triage }) => triage.enqueueClaim(object, 'enqueueNow'));
    this.#each(({ triage }) => triage.claimChanged(object, previous));
  }

  #volumeChanged(change: KeptChange<Volume>): void {
    if (change.type === 'deleted') this.#enqueueClaimOf(change.object);
    else this.#each((driver) => driver.volumeChanged(change));
  }

  /** A claim whose volume is deleted before the two are bound needs another volume. The claim of a
   * Released volume, as most deleted ones are, is gone. */
  #enqueueClaimOf(volume: Volume): void {
    if (volume.status?.phase === 'Released') return;
    const uids = claimsOf(volume);
    for (const claim of this.keptClaims.list())
      if (uids.has(claim.metadata.uid))
        this.#each(({ triage }) => triage.enqueueClaim(claim, 'ensureQueued'));
  }

  /** The same for volumes that were deleted while no watch was open. */
  #volumesListed({
    hadVolume,
    drivers,
  }: {
    readonly hadVolume: (claimUid: string) => boolean;
    readonly drivers: readonly DriverNames[];
  }): void {
    for (const claim of this.keptClaims.list()) {
      const { uid } = claim.metadata;
      if (hadVolume(uid) && !this.keptVolumes.hasVolume(uid))
        this.#each(({ triage }) => triage.enqueueClaim(claim, 'ensureQueued'));
    }
    for (const driver of this.#drivers)
      if (drivers.includes(driver.served.driver)) driver.volumesListed();
  }
}

/** Whether what a watch has shown is complete and up to date. */
function isCurrent(watch: Pick<ListWatch, 'hasSynced' | 'trouble'>): boolean {
  return watch.hasSynced && watch.trouble === undefined;
}
