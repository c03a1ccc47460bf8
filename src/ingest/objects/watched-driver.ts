import type { Class, Volume } from '../../kube/objects.ts';
import type { JobKey } from '../../queue/contract.ts';
import type { HandleSharers } from '../../records/shared-handles.ts';
import { unlessAborted } from '../../runtime/abort.ts';
import type { Logger } from '../../runtime/log.ts';
import { isPending, restoredSnapshot } from '../../volumes/data-source.ts';
import { EventHandler } from './event-handler.ts';
import type { KeptChange } from './pending-claim-cache.ts';
import type { DriverObjects, ServedDriver } from './object-source.ts';
import type { Informers } from './informers.ts';

/** What one driver sees of the objects that are watched. */
export class WatchedDriver implements DriverObjects {
  readonly served: ServedDriver;
  readonly triage: EventHandler;
  /** See `follow`. */
  followed: ReadonlySet<string> = new Set();
  readonly #watched: Informers;
  /** Called when a list is complete that was made with this driver in mind. */
  volumesListed: () => void = () => undefined;
  readonly #listed = new Promise<void>((resolve) => (this.volumesListed = resolve));
  #isListed = false;

  constructor(served: ServedDriver, watched: Informers, log: Logger) {
    this.served = served;
    this.#watched = watched;
    const lookups = {
      classOf: (name: string) => watched.classes.get(name),
      hasVolume: (claimUid: string) => watched.keptVolumes.hasVolume(claimUid),
      findOther: (volume: Volume) => watched.keptVolumes.findOther(volume),
    };
    this.triage = new EventHandler(served, lookups, log);
    void this.#listed.then(() => (this.#isListed = true));
  }

  async waitForSync(signal: AbortSignal): Promise<void> {
    await this.#watched.waitForSync(signal);
    if (!signal.aborted) await unlessAborted(this.#listed, signal);
  }

  /** A volume was added or modified. */
  volumeChanged({ object, previous, isModified }: KeptChange<Volume>): void {
    // It is triaged again when they are.
    if (!this.#watched.keptVolumes.isComparable(object)) return;
    // It needed no job before, and an earlier one may still be delayed.
    if (isModified === true) this.triage.enqueueVolume(object, 'enqueueNow');
    else this.triage.volumeChanged(object, previous);
  }

  /** A volume that is unchanged may need a job now. */
  volumeFreed(volume: Volume): void {
    if (this.#watched.keptVolumes.isComparable(volume))
      this.triage.enqueueVolume(volume, 'ensureQueued');
  }

  // oxlint-disable-next-line typescript/require-await -- other sources read pages here
  async *outstanding(): AsyncGenerator<JobKey> {
    for (const claim of this.#watched.keptClaims.list()) yield* this.triage.keysOfClaim(claim);
    for (const volume of this.#comparable()) yield* this.triage.keysOfVolume(volume);
  }

  reportRefused(): void {
    for (const volume of this.#comparable()) this.triage.reportIfRefused(volume);
  }

  follow(objects: ReadonlySet<string>): void {
    this.followed = objects;
    this.#watched.followedChanged();
  }

  versionOf(object: string): string | undefined {
    return this.#watched.versionOf(object);
  }

  classes(): Iterable<Class> {
    return this.#watched.classes.list();
  }

  restoredSnapshots(): ReadonlySet<string> {
    return new Set(
      [...this.#watched.keptClaims.list()]
        .filter((claim) => isPending(claim))
        .flatMap((claim) => restoredSnapshot(claim) ?? []),
    );
  }

  get isFollowingVolumes(): boolean {
    return this.#isListed && this.#watched.isFollowingVolumes;
  }

  sharedHandles(): HandleSharers {
    return this.#watched.keptVolumes.sharedOf(this.served.driver.name);
  }

  stop(): void {
    this.#watched.leave(this);
  }

  *#comparable(): Generator<Volume> {
    const { keptVolumes } = this.#watched;
    for (const volume of keptVolumes.list()) if (keptVolumes.isComparable(volume)) yield volume;
  }
}
