/* Decides which claims and volumes need a job, and which of their changes matter to a job (what
 * controller-runtime calls a predicate). Pure. */
import { isDeepStrictEqual } from 'node:util';
import { NO_CLASS, NOT_ANNOTATED, type PendingWhy } from '../../explain/pending-index.ts';
import type { Claim, Class, Volume } from '../../kube/objects.ts';
import type { JobKey, KeyToQueue } from '../../queue/contract.ts';
import { shouldDelete } from '../../volumes/deletion.ts';
import {
  classNameOf,
  provisionerOf,
  shouldProvision,
  waitsForPod,
  whyOfOtherNode,
} from '../../volumes/eligibility.ts';
import { type DriverNames, isKnownAs } from '../../volumes/driver-facts.ts';
import { isTerminatingCloneSource } from '../../volumes/data-source.ts';
import type { WatchedClaim } from './transforms.ts';

/** Whether an object needs a job. */
export type Need =
  | { readonly kind: 'job'; readonly key: KeyToQueue }
  | { readonly kind: 'ignore'; readonly reason: string };

/** What the predicates need to know about the driver. */
export interface PredicateDriver extends DriverNames {
  readonly controllerCapabilities: ReadonlySet<string>;
}

/** What the predicates read from the caches of classes and volumes. */
export interface ClaimLookups {
  readonly classOf: (name: string) => Class | undefined;
  /** Whether a volume names the claim's UID. */
  readonly hasVolume: (claimUid: string) => boolean;
}

/** Whether a claim needs a job. A claim whose class is missing needs none: it is judged again when
 * the class is added. A claim whose volume exists needs none: the volume controller binds it
 * (sig-storage-lib-external-provisioner controller/controller.go shouldProvision). */
export function claimNeed(
  claim: WatchedClaim,
  driver: PredicateDriver,
  lookups: ClaimLookups,
): Need {
  const otherNodes = whyOfOtherNode(claim, driver);
  if (otherNodes !== undefined) return { kind: 'ignore', reason: otherNodes };
  const job: Need = { kind: 'job', key: keyToQueue(claim) };
  if (isDeletedCloneSource(claim, driver)) return job;
  const verdict = shouldProvision(claim, driver, (name) => lookups.classOf(name));
  if (verdict.kind === 'no-class')
    return { kind: 'ignore', reason: `storageClass "${verdict.className}" not found` };
  if (verdict.kind === 'ignore') return verdict;
  if (lookups.hasVolume(claim.metadata.uid))
    return { kind: 'ignore', reason: 'the volume of the claim exists' };
  return job;
}

/** The claim's key, with the claim for the journal. */
function keyToQueue({ metadata, copy }: WatchedClaim): KeyToQueue {
  return { ...keyOfClaim(metadata), ...(copy === undefined ? {} : { claim: copy }) };
}

export function keyOfClaim({ uid, namespace = '', name }: Claim['metadata']): JobKey {
  return { kind: 'claim', uid, namespace, name };
}

/** Why a claim of the driver is not Bound, for reports to people: '' if it has a job; undefined if
 * nobody waits for its volume, or the scheduler has not chosen its node yet. */
export function whyPending(
  claim: Claim,
  driver: PredicateDriver,
  lookups: ClaimLookups,
): PendingWhy | undefined {
  const { spec, status, metadata } = claim;
  if ((spec.volumeName ?? '') !== '' || status?.phase === 'Bound') return undefined;
  // First, since after a burst this is the answer for nearly all claims.
  if (lookups.hasVolume(metadata.uid)) return undefined;
  const need = claimNeed(claim, driver, lookups);
  if (need.kind === 'job') return metadata.deletionTimestamp === undefined ? '' : undefined;
  if (isAnnotated(claim)) return undefined;
  return whyNotAnnotated(claim, driver, lookups);
}

function whyNotAnnotated(
  claim: Claim,
  driver: PredicateDriver,
  lookups: ClaimLookups,
): PendingWhy | undefined {
  const className = classNameOf(claim);
  // storageClassName: '' asks for a volume that exists already.
  if (className === '' && claim.spec.storageClassName !== undefined) return undefined;
  const cls = lookups.classOf(className);
  if (cls === undefined) return NO_CLASS;
  return isKnownAs(driver, cls.provisioner) && !waitsForPod(claim, cls) ? NOT_ANNOTATED : undefined;
}

/** How LeaderOnlyQueue gets the key of a changed object that needs a job.
 *
 * - `ensureQueued`: the object may have begun to need a job
 * - `enqueueNow`: a user or another controller changed the object, which may end the cause of a
 *   failure; or it may need a job again. An earlier job may be delayed and should run now
 * - `promote`: sutler or a user is deleting a volume. A delayed job should run now; no new job is
 *   needed */
export type EnqueueHow = 'ensureQueued' | 'enqueueNow' | 'promote';

/** What a change of a claim means for its job.
 * @param neededJob  whether the claim needed a job before the change
 * @returns undefined: sutler or the volume controller wrote it, or nothing changed */
export function judgeClaimChange(
  claim: Claim,
  previous: Claim,
  neededJob: boolean,
  driver: PredicateDriver,
): EnqueueHow | undefined {
  if (!neededJob) return isAnnotated(previous) ? 'enqueueNow' : 'ensureQueued';
  if (isDeletedCloneSource(claim, driver) !== isDeletedCloneSource(previous, driver))
    return 'ensureQueued';
  const isBinding =
    (claim.spec.volumeName ?? '') !== '' || claim.status?.phase !== previous.status?.phase;
  return isBinding || isUnchanged(claim, previous) ? undefined : 'enqueueNow';
}

/** Whether the volume controller has asked for a volume. Before that (a claim may wait for its
 * first node) there is no job that could be delayed. */
function isAnnotated(claim: Claim): boolean {
  return provisionerOf(claim) !== undefined;
}

/** What a change of a volume means for its job, as `judgeClaimChange` for claims. */
export function judgeVolumeChange(
  volume: Volume,
  previous: Volume,
  driver: DriverNames,
): EnqueueHow | undefined {
  // A delayed deletion must run to notice that the policy has changed.
  if (shouldDelete(previous, driver).kind !== shouldDelete(volume, driver).kind)
    return 'enqueueNow';
  if (volume.status?.phase !== previous.status?.phase || isUnchanged(volume, previous))
    return undefined;
  return volume.metadata.deletionTimestamp === undefined ? 'enqueueNow' : 'promote';
}

/** Also true if only finalizers changed: caches keep only the finalizers that sutler adds and
 * removes. */
function isUnchanged(object: Claim | Volume, previous: Claim | Volume): boolean {
  if (object.metadata.resourceVersion === previous.metadata.resourceVersion) return true;
  const others = ({ metadata, spec }: Claim | Volume) => {
    const { annotations, deletionTimestamp } = metadata;
    return { annotations, deletionTimestamp, spec };
  };
  return (
    !isDeepStrictEqual(object.metadata.finalizers, previous.metadata.finalizers) &&
    isDeepStrictEqual(others(object), others(previous))
  );
}

/** Whether a claim of this driver is being deleted and has the finalizer of a clone source. Its job
 * removes the finalizer when no claim is cloned from it any more (external-provisioner
 * pkg/controller/clone_controller.go). A claim that was bound by hand names no driver, so its job
 * reads its volume. */
function isDeletedCloneSource(claim: Claim, driver: PredicateDriver): boolean {
  const provisioner = provisionerOf(claim);
  const isOurs = provisioner === undefined || isKnownAs(driver, provisioner);
  const canClone = driver.controllerCapabilities.has('CLONE_VOLUME');
  return isOurs && canClone && isTerminatingCloneSource(claim);
}

/** Whether sutler may have given a volume its name: it ends in the claim's UID or the UID's first
 * characters (--volume-name-prefix, --volume-name-uuid-length). */
function isNamedAfter(name: string, claimUid: string): boolean {
  const end = name.slice(name.lastIndexOf('-') + 1);
  const isShortened = end !== '' && claimUid.replaceAll('-', '').startsWith(end);
  return name.endsWith(`-${claimUid}`) || isShortened;
}

/** Whether a volume needs a job. The job itself checks whether another PV has the same handle. */
export function volumeNeed(volume: Volume, driver: DriverNames): Need {
  const { uid, name } = volume.metadata;
  const verdict = shouldDelete(volume, driver);
  if (verdict.kind === 'ignore') return verdict;
  const claimUid = volume.spec.claimRef?.uid;
  // Another PV that names the claim too has a job of its own.
  const ofClaim = claimUid !== undefined && isNamedAfter(name, claimUid) ? { claimUid } : {};
  return { kind: 'job', key: { kind: 'volume', uid, namespace: '', name, ...ofClaim } };
}
