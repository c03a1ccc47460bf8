import type { PendingEntry } from '../../explain/pending-index.ts';
import type { Claim, Volume } from '../../kube/objects.ts';
import { keyOf } from '../../kube/resources.ts';
import { type JobKey, type KeyToQueue, logFields } from '../../queue/contract.ts';
import type { Logger } from '../../runtime/log.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import { mayBeSame } from '../../volumes/handles.ts';
import type { LeaderOnlyQueue } from '../leader-only-queue.ts';
import type { Unfinished } from './object-source.ts';
import {
  type ClaimLookups,
  claimNeed,
  judgeClaimChange,
  judgeVolumeChange,
  keyOfClaim,
  type Need,
  type PredicateDriver,
  volumeNeed,
  whyPending,
} from './predicates.ts';
import type { WatchedClaim } from './transforms.ts';

/** Looks for another PV with the handle of one whose deletion is about to be enqueued
 * (invariant 6). */
export interface SharedHandleLook {
  /** The names of other PVs that may have the volume's handle. */
  readonly sharersOf: (volume: Volume) => readonly string[];
  readonly read: (name: string) => Promise<Volume | undefined>;
  /** Called when the deletion is not enqueued because `other` has the handle too. */
  readonly onRefused: (volume: Volume, other: string) => void;
}

export interface EventHandlerOptions {
  readonly driver: PredicateDriver;
  readonly queue: Pick<LeaderOnlyQueue, 'ensureQueued' | 'enqueueNow' | 'promote' | 'isAllowing'>;
  /** What is known about other objects than the one that has changed. */
  readonly lookups: ClaimLookups;
  /** Absent where PVs are not watched: only the worker looks there, before DeleteVolume. */
  readonly sharing?: SharedHandleLook | undefined;
  readonly log: Logger;
}

/** All claims and volumes that may need a job; see ObjectSource. */
interface Objects {
  claims(isWanted: () => boolean): AsyncIterable<Claim>;
  volumes(isWanted: () => boolean): AsyncIterable<Volume>;
}

/** How a key is passed on: see LeaderOnlyQueue. */
export type EnqueueHow = 'ensureQueued' | 'enqueueNow';

/** Asks the predicates about claims and volumes of one driver that were added or modified, and
 * passes the keys of those that need a job to the queue. */
export class EventHandler {
  readonly driver: PredicateDriver;
  readonly queue: EventHandlerOptions['queue'];
  readonly #lookups: ClaimLookups;
  readonly #sharing: SharedHandleLook | undefined;
  readonly #log: Logger;

  constructor({ driver, queue, lookups, sharing, log }: EventHandlerOptions) {
    this.driver = driver;
    this.queue = queue;
    this.#lookups = lookups;
    this.#sharing = sharing;
    this.#log = log;
  }

  /** A claim was added or modified.
   * @param previous    its state before, where it is known
   * @param isModified  where that is not known: it was not added, so an earlier job of it may still
   *                    be delayed */
  claimChanged(claim: WatchedClaim, previous: WatchedClaim | undefined, isModified = false): void {
    if (previous === undefined)
      return this.enqueueClaim(claim, isModified ? 'enqueueNow' : 'ensureQueued');
    const neededJob = this.#claimNeed(previous).kind === 'job';
    const meaning = judgeClaimChange(claim, previous, { neededJob, driver: this.driver });
    if (meaning === 'irrelevant') return;
    this.enqueueClaim(claim, meaning === 'need-changed' ? 'ensureQueued' : 'enqueueNow');
  }

  /** A volume was added or modified, as with claims. */
  volumeChanged(volume: Volume, previous: Volume | undefined, isModified = false): void {
    if (previous === undefined)
      return this.enqueueVolume(volume, isModified ? 'enqueueNow' : 'ensureQueued');
    const meaning = judgeVolumeChange(volume, previous, this.driver);
    const key = this.keyOfVolume(volume);
    if (meaning === 'deleting' && key !== undefined) this.queue.promote(key);
    // Also for `need-changed`: a delayed deletion has to run to find that the policy has changed.
    if (meaning !== 'deleting' && meaning !== 'irrelevant')
      this.enqueueVolume(volume, 'enqueueNow');
  }

  /** Passes the claim's key on if it needs a job. */
  enqueueClaim(claim: Claim, how: EnqueueHow): void {
    this.#enqueue(this.#claimNeed(claim), `claim ${keyOf(claim.metadata)}`, how);
  }

  /** Passes the volume's key on if it needs a job and no other PV has its handle. */
  enqueueVolume(volume: Volume, how: EnqueueHow): void {
    const need = volumeNeed(volume, this.driver);
    const enqueue = (): void => this.#enqueue(need, `volume ${volume.metadata.name}`, how);
    if (need.kind === 'ignore' || !this.#mayShare(volume)) return enqueue();
    void this.#isShared(volume).then((isShared) => {
      if (!isShared) enqueue();
    });
  }

  /** Passes the key of a volume on: its run judges it. */
  enqueueVolumeKey(key: JobKey): void {
    this.queue.ensureQueued(key);
  }

  /** The keys of all objects that need a job now.
   * @throws Error when this process does not lead the driver any more */
  async *outstanding(source: Objects): AsyncGenerator<KeyToQueue> {
    const isWanted = (): boolean => this.queue.isAllowing;
    for await (const claim of source.claims(isWanted)) {
      const need = this.#claimNeed(claim);
      if (need.kind === 'job') yield need.key;
    }
    for await (const volume of source.volumes(isWanted)) {
      const key = this.keyOfVolume(volume);
      if (key !== undefined && !(this.#mayShare(volume) && (await this.#isShared(volume))))
        yield key;
    }
  }

  /** What is not done yet, for people to look at. */
  *pending({ claims, volumes }: Unfinished): Generator<PendingEntry> {
    for (const claim of claims) {
      const why = whyPending(claim, this.driver, this.#lookups);
      if (why === undefined) continue;
      const { creationTimestamp = '' } = claim.metadata;
      const key = keyOfClaim(claim.metadata);
      yield { key, className: classNameOf(claim), sinceMs: Date.parse(creationTimestamp), why };
    }
    for (const volume of volumes) {
      const key = this.keyOfVolume(volume);
      if (key !== undefined) yield { key, className: '', sinceMs: NaN, why: '' as const };
    }
  }

  #mayShare(volume: Volume): boolean {
    return this.queue.isAllowing && (this.#sharing?.sharersOf(volume) ?? []).length > 0;
  }

  /** Reads the other PVs and compares. If they can't be read, the worker decides. */
  async #isShared(volume: Volume): Promise<boolean> {
    const { sharersOf, read, onRefused } = this.#sharing ?? {};
    try {
      for (const name of sharersOf?.(volume) ?? []) {
        const other = await read?.(name);
        if (other === undefined || !mayBeSame(other, volume)) continue;
        onRefused?.(volume, name);
        return true;
      }
    } catch (error) {
      this.#log.debug({ err: error }, 'could not read a PV that may share a handle');
    }
    return false;
  }

  /** The volume's key, if it needs a job. */
  keyOfVolume(volume: Volume): JobKey | undefined {
    const need = volumeNeed(volume, this.driver);
    return need.kind === 'job' ? need.key : undefined;
  }

  #enqueue(need: Need, object: string, how: EnqueueHow): void {
    if (need.kind !== 'job')
      return this.#log.debug({ object, reason: need.reason }, 'needs no job');
    this.#log.debug(logFields(need.key), 'needs a job');
    this.queue[how](need.key);
  }

  #claimNeed(claim: Claim): Need {
    return claimNeed(claim, this.driver, this.#lookups);
  }
}
