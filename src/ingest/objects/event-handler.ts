import type { PendingEntry } from '../../explain/pending-index.ts';
import type { Claim, Volume } from '../../kube/objects.ts';
import { keyOf } from '../../kube/resources.ts';
import { type JobKey, type KeyToQueue, logFields } from '../../queue/contract.ts';
import type { Logger } from '../../runtime/log.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import type { LeaderOnlyQueue } from '../leader-only-queue.ts';
import type { ObjectSource } from './object-source.ts';
import {
  claimNeed,
  type EnqueueHow,
  judgeClaimChange,
  judgeVolumeChange,
  keyOfClaim,
  type Need,
  type PredicateDriver,
  volumeNeed,
  whyPending,
} from './predicates.ts';
import type { WatchedClaim } from './transforms.ts';

type Objects = Pick<ObjectSource, 'classOf' | 'hasVolume' | 'claims' | 'volumes' | 'unfinished'>;

type ChangeHow = 'added' | 'modified';

/** Asks the predicates about claims and volumes of one driver that were added or modified, and
 * passes the keys of those that need a job to the queue. */
export class EventHandler {
  readonly driver: PredicateDriver;
  readonly queue: Pick<LeaderOnlyQueue, 'ensureQueued' | 'enqueueNow' | 'promote' | 'isAllowing'>;
  readonly #source: Objects;
  readonly #log: Logger;

  /** @param source  the objects in memory */
  constructor(driver: PredicateDriver, queue: EventHandler['queue'], source: Objects, log: Logger) {
    this.driver = driver;
    this.queue = queue;
    this.#source = source;
    this.#log = log;
  }

  /** Enqueues a claim that was added or modified, if it needs a job.
   * @param previous  its state before, if known
   * @param how  used if that is not known: an earlier job of a modified claim may be delayed */
  claimChanged(claim: WatchedClaim, previous: WatchedClaim | undefined, how: ChangeHow): void {
    if (previous === undefined)
      return this.enqueueClaim(claim, how === 'modified' ? 'enqueueNow' : 'ensureQueued');
    const neededJob = this.#claimNeed(previous).kind === 'job';
    const meaning = judgeClaimChange(claim, previous, neededJob, this.driver);
    if (meaning !== undefined) this.enqueueClaim(claim, meaning);
  }

  /** As `claimChanged`, for volumes. */
  volumeChanged(volume: Volume, previous: Volume | undefined, how: ChangeHow): void {
    if (previous === undefined)
      return this.enqueueVolume(volume, how === 'modified' ? 'enqueueNow' : 'ensureQueued');
    const meaning = judgeVolumeChange(volume, previous, this.driver);
    if (meaning !== undefined) this.enqueueVolume(volume, meaning);
  }

  /** Passes the claim's key on if it needs a job. */
  enqueueClaim(claim: Claim, how: EnqueueHow): void {
    this.#enqueue(this.#claimNeed(claim), `claim ${keyOf(claim.metadata)}`, how);
  }

  /** Passes the volume's key on if it needs a job. */
  enqueueVolume(volume: Volume, how: EnqueueHow): void {
    this.#enqueue(volumeNeed(volume, this.driver), `volume ${volume.metadata.name}`, how);
  }

  /** The keys of all objects that need a job now.
   * @throws Error when this process does not lead the driver any more */
  async *outstanding(): AsyncGenerator<KeyToQueue> {
    const isWanted = (): boolean => this.queue.isAllowing;
    for await (const claim of this.#source.claims(isWanted)) {
      const need = this.#claimNeed(claim);
      if (need.kind === 'job') yield need.key;
    }
    for await (const volume of this.#source.volumes(isWanted)) {
      const key = this.keyOfVolume(volume);
      if (key !== undefined) yield key;
    }
  }

  /** Claims and volumes that are not done yet, for reports to people. */
  *pending(): Generator<PendingEntry> {
    const { claims, volumes } = this.#source.unfinished();
    for (const claim of claims) {
      const why = whyPending(claim, this.driver, this.#source);
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
    return claimNeed(claim, this.driver, this.#source);
  }
}
