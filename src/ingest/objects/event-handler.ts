import type { Claim, Volume } from '../../kube/objects.ts';
import { keyOf } from '../../kube/resources.ts';
import type { JobKey } from '../../queue/contract.ts';
import type { Logger } from '../../runtime/log.ts';
import type { ServedDriver } from './object-source.ts';
import {
  judgeClaimChange,
  judgeVolumeChange,
  triageClaim,
  triageVolume,
  type ClaimLookups,
  type Triage,
} from './predicates.ts';

/** What the source knows about other objects than the one that is triaged. */
export interface TriageLookups extends ClaimLookups {
  /** Another PV that may stand for the same volume, by its name. */
  readonly findOther: (volume: Volume) => string | undefined;
}

/** How a key is passed on: see LeaderOnlyQueue. */
export type EnqueueHow = 'ensureQueued' | 'enqueueNow';

/** Triages objects for one driver, and passes the keys of those that need a job to its leader
 * queue. */
export class EventHandler {
  readonly #served: ServedDriver;
  readonly #lookups: TriageLookups;
  readonly #log: Logger;

  constructor(served: ServedDriver, lookups: TriageLookups, log: Logger) {
    this.#served = served;
    this.#lookups = lookups;
    this.#log = log;
  }

  /** A claim was added or modified.
   * @param previous  its state before, where it is known */
  claimChanged(claim: Claim, previous: Claim | undefined): void {
    if (previous === undefined) return this.enqueueClaim(claim, 'ensureQueued');
    const { driver } = this.#served;
    const neededJob = this.#triageClaim(previous).kind === 'job';
    const meaning = judgeClaimChange(claim, previous, { neededJob, driver });
    if (meaning === 'irrelevant') return;
    this.enqueueClaim(claim, meaning === 'need-changed' ? 'ensureQueued' : 'enqueueNow');
  }

  /** A volume was added or modified.
   * @param previous  its state before, where it is known */
  volumeChanged(volume: Volume, previous: Volume | undefined): void {
    if (previous === undefined) return this.enqueueVolume(volume, 'ensureQueued');
    const meaning = judgeVolumeChange(volume, previous, this.#served.driver);
    if (meaning === 'deleting')
      for (const key of this.keysOfVolume(volume)) this.#served.queue.promote(key);
    // Also for `need-changed`: a delayed deletion has to run to find that the policy has changed.
    else if (meaning !== 'irrelevant') this.enqueueVolume(volume, 'enqueueNow');
  }

  /** Passes the claim's key on if it needs a job. */
  enqueueClaim(claim: Claim, how: EnqueueHow): void {
    this.#enqueue(this.#triageClaim(claim), `claim ${keyOf(claim.metadata)}`, how);
  }

  /** Passes the volume's key on if it needs a job; reports it if it must not be deleted. */
  enqueueVolume(volume: Volume, how: EnqueueHow): void {
    const triage = this.#triageVolume(volume);
    this.#enqueue(triage, `volume ${volume.metadata.name}`, how);
    this.#reportIfRefused(volume, triage);
  }

  /** The claim's key, if it needs a job. */
  keysOfClaim(claim: Claim): readonly JobKey[] {
    return keysIn(this.#triageClaim(claim));
  }

  /** The volume's key, if it needs a job. */
  keysOfVolume(volume: Volume): readonly JobKey[] {
    return keysIn(this.#triageVolume(volume));
  }

  /** Reports the volume if it should be deleted and must not be. */
  reportIfRefused(volume: Volume): void {
    this.#reportIfRefused(volume, this.#triageVolume(volume));
  }

  #reportIfRefused(volume: Volume, triage: Triage): void {
    if (triage.kind === 'refuse') this.#served.onRefused?.(volume, triage.reason);
  }

  #enqueue(triage: Triage, object: string, how: EnqueueHow): void {
    if (triage.kind === 'job') this.#served.queue[how](triage.key);
    else this.#log.debug({ object, reason: triage.reason }, 'needs no job');
  }

  #triageClaim(claim: Claim): Triage {
    return triageClaim(claim, this.#served.driver, this.#lookups);
  }

  #triageVolume(volume: Volume): Triage {
    return triageVolume(volume, this.#served.driver, this.#lookups.findOther);
  }
}

function keysIn(triage: Triage): readonly JobKey[] {
  return triage.kind === 'job' ? [triage.key] : [];
}
