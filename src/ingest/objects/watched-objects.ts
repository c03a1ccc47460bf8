import type { KubeClient } from '../../kube/client.ts';
import type { Claim, Class, Volume } from '../../kube/objects.ts';
import {
  startReflector,
  type Change,
  type Reflector,
  type ReflectorOptions,
  type Transformed,
} from '../../kube/reflector.ts';
import { claims, classes, keyOf, volumes, type Resource } from '../../kube/resources.ts';
import type { JobKey } from '../../queue/contract.ts';
import { objectId, parseObjectId } from '../../queue/wait-list.ts';
import type { HandleSharers } from '../../records/shared-handles.ts';
import { unlessAborted } from '../../runtime/abort.ts';
import type { Logger } from '../../runtime/log.ts';
import type { Registry } from '../../runtime/metrics.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import { isPending, restoredSnapshot } from '../../volumes/source-use.ts';
import { ClaimedIndex, claimsOf } from './claimed-index.ts';
import { DriverTriage } from './driver-triage.ts';
import { HandleIndex } from './handle-index.ts';
import type { DriverObjects, ObjectSource, ServedDriver } from './object-source.ts';
import { transformClaim, transformClass, transformVolume } from './transforms.ts';

export interface WatchedObjectsOptions {
  readonly client: KubeClient;
  readonly log: Logger;
  readonly metrics: Registry;
  /** See ReflectorOptions. */
  readonly backoff?: NonNullable<ReflectorOptions<Transformed>['backoff']>;
}

/** Lists, watches and caches claims, classes and volumes, for all drivers. */
export class WatchedObjects implements ObjectSource {
  readonly #options: WatchedObjectsOptions;
  readonly #handles = new HandleIndex();
  readonly #claimed = new ClaimedIndex();
  readonly #classes: Reflector<Class>;
  readonly #claims: Reflector<Claim>;
  readonly #volumes: Reflector<Volume>;
  /** By the plural of the resource. */
  readonly #reflectors: ReadonlyMap<string, Reflector<Transformed>>;
  readonly #drivers = new Set<WatchedDriver>();

  constructor(options: WatchedObjectsOptions) {
    this.#options = options;
    this.#classes = this.#watch(classes, transformClass, (change) => this.#classChanged(change));
    this.#claims = this.#watch(claims, transformClaim, (change) => this.#claimChanged(change));
    this.#volumes = this.#watch(volumes, transformVolume, (change) => this.#volumeChanged(change));
    this.#reflectors = new Map<string, Reflector<Transformed>>([
      [classes.plural, this.#classes],
      [claims.plural, this.#claims],
      [volumes.plural, this.#volumes],
    ]);
  }

  async waitForSync(signal: AbortSignal): Promise<void> {
    const all = [...this.#reflectors.values()].map((reflector) => reflector.waitForSync());
    await unlessAborted(Promise.all(all), signal);
  }

  get trouble(): string | undefined {
    return [...this.#reflectors.values()].find(({ trouble }) => trouble !== undefined)?.trouble;
  }

  serve(served: ServedDriver): DriverObjects {
    const driver: WatchedDriver = new WatchedDriver(served, {
      source: this,
      classes: this.#classes,
      claims: this.#claims,
      volumes: this.#volumes,
      handles: this.#handles,
      claimed: this.#claimed,
      log: this.#options.log,
      onStop: () => void this.#drivers.delete(driver),
    });
    this.#drivers.add(driver);
    return driver;
  }

  /** See DriverObjects. */
  versionOf(object: string): string | undefined {
    const { resource, namespace, name } = parseObjectId(object);
    const reflector = this.#reflectors.get(resource);
    if (reflector?.hasSynced !== true || reflector.trouble !== undefined) return undefined;
    return reflector.get(keyOf({ namespace, name }))?.metadata.resourceVersion ?? '';
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#reflectors.values()].map((reflector) => reflector.stop()));
  }

  #watch<T extends Transformed>(
    resource: Resource,
    transform: (raw: unknown) => T,
    onChange: (change: Change<T>) => void,
  ): Reflector<T> {
    return startReflector<T>({
      ...this.#options,
      resource,
      transform,
      onChange: (change) => {
        const object = objectId({ resource: resource.plural, ...change.object.metadata });
        for (const { served } of this.#drivers) served.onObject?.(object);
        onChange(change);
      },
    });
  }

  /** A class that was added, or deleted and created again, may end the cause of its claims'
   * failures. */
  #classChanged({ type, object }: Change<Class>): void {
    if (type !== 'added') return;
    for (const claim of this.#claims.list())
      if (classNameOf(claim) === object.metadata.name)
        for (const { triage } of this.#drivers) triage.enqueueClaim(claim, 'enqueueNow');
  }

  /** A deleted claim needs no job: if its record is open, the record's key is in the queue. */
  #claimChanged({ type, object, previous }: Change<Claim>): void {
    if (type === 'deleted') return;
    for (const { triage } of this.#drivers) triage.claimChanged(object, previous);
  }

  #volumeChanged(change: Change<Volume>): void {
    const { type, object, previous } = change;
    if (this.#handles.apply(change))
      for (const { served } of this.#drivers) served.onSharedHandles?.();
    this.#claimed.apply(change);
    if (type === 'deleted') this.#enqueueClaimOf(object);
    for (const name of this.#handles.othersOf(change)) {
      const other = this.#volumes.get(name);
      if (other !== undefined)
        for (const { triage } of this.#drivers) triage.enqueueVolume(other, 'ensureQueued');
    }
    if (type === 'deleted') return;
    for (const { triage } of this.#drivers) triage.volumeChanged(object, previous);
  }

  /** A claim whose volume is deleted before the two are bound needs another volume. The claim of a
   * Released volume, as most deleted ones are, is gone. */
  #enqueueClaimOf(volume: Volume): void {
    if (volume.status?.phase === 'Released') return;
    const uids = claimsOf(volume);
    for (const claim of this.#claims.list())
      if (uids.has(claim.metadata.uid))
        for (const { triage } of this.#drivers) triage.enqueueClaim(claim, 'ensureQueued');
  }
}

/** What a driver sees of the objects that are watched. */
interface Watched {
  readonly source: Pick<WatchedObjects, 'waitForSync' | 'versionOf'>;
  readonly classes: Reflector<Class>;
  readonly claims: Reflector<Claim>;
  readonly volumes: Reflector<Volume>;
  readonly handles: HandleIndex;
  readonly claimed: ClaimedIndex;
  readonly log: Logger;
  readonly onStop: () => void;
}

class WatchedDriver implements DriverObjects {
  readonly served: ServedDriver;
  readonly triage: DriverTriage;
  readonly #watched: Watched;

  constructor(served: ServedDriver, watched: Watched) {
    this.served = served;
    this.#watched = watched;
    const lookups = {
      classOf: (name: string) => watched.classes.get(name),
      hasVolume: (claimUid: string) => watched.claimed.has(claimUid),
      findOther: (volume: Volume) => watched.handles.findOther(volume),
    };
    this.triage = new DriverTriage(served, lookups, watched.log);
  }

  waitForSync(signal: AbortSignal): Promise<void> {
    return this.#watched.source.waitForSync(signal);
  }

  // oxlint-disable-next-line typescript/require-await -- other sources read pages here
  async *outstanding(): AsyncGenerator<JobKey> {
    for (const claim of this.#watched.claims.list()) yield* this.triage.keysOfClaim(claim);
    for (const volume of this.#watched.volumes.list()) yield* this.triage.keysOfVolume(volume);
  }

  reportRefused(): void {
    for (const volume of this.#watched.volumes.list()) this.triage.reportIfRefused(volume);
  }

  /** All objects are cached, so there is nothing to do. */
  follow(): void {}

  versionOf(object: string): string | undefined {
    return this.#watched.source.versionOf(object);
  }

  classes(): Iterable<Class> {
    return this.#watched.classes.list();
  }

  restoredSnapshots(): ReadonlySet<string> {
    return new Set(
      [...this.#watched.claims.list()]
        .filter((claim) => isPending(claim))
        .flatMap((claim) => restoredSnapshot(claim) ?? []),
    );
  }

  get isFollowingVolumes(): boolean {
    return this.#watched.volumes.isFollowing;
  }

  sharedHandles(): HandleSharers {
    return this.#watched.handles.sharedOf(this.served.driver.name);
  }

  stop(): void {
    this.#watched.onStop();
  }
}
