import { isDeepStrictEqual } from 'node:util';
import { BETA_STORAGE_PROVISIONER, CLAIM_FINALIZER, STORAGE_PROVISIONER } from '../kube/keys.ts';
import type { Claim, Class, Volume } from '../kube/objects.ts';
import type { JobKey } from '../queue/contract.ts';
import { judgeVolume } from '../volumes/deletion.ts';
import { judgeClaim } from '../volumes/eligibility.ts';
import { identityOf } from '../volumes/handles.ts';
import type { DriverNames } from '../volumes/driver-facts.ts';
import { isTerminatingCloneSource } from '../volumes/source-use.ts';

/** What becomes of a hint. */
export type Triage =
  | { readonly kind: 'job'; readonly key: JobKey }
  | { readonly kind: 'ignore'; readonly reason: string }
  /** It should be done and can't be; for the object's own events. */
  | { readonly kind: 'refuse'; readonly reason: string };

/** What triage has to know of the driver. */
export interface TriageDriver extends DriverNames {
  readonly controllerCapabilities: ReadonlySet<string>;
}

/** What the other views say about a claim. */
export interface ClaimSurroundings {
  readonly classOf: (name: string) => Class | undefined;
  /** Whether a volume is there that names the claim's UID. */
  readonly hasVolume: (claimUid: string) => boolean;
}

/** Whether a claim needs a job. A claim without its class gets none: the class's arrival brings it
 * here again. Nor does one whose volume is there: binding it is the volume controller's business
 * (spec 02 §5). */
export function triageClaim(claim: Claim, driver: TriageDriver, around: ClaimSurroundings): Triage {
  const { uid, namespace, name } = claim.metadata;
  const job: Triage = {
    kind: 'job',
    key: { kind: 'claim', uid, namespace: namespace ?? '', name },
  };
  // Whatever became of the claim, the finalizer of an earlier run has to come off once nothing is
  // open.
  if (claim.metadata.finalizers?.includes(CLAIM_FINALIZER) === true) return job;
  if (isToBeReleased(claim, driver)) return job;
  const verdict = judgeClaim(claim, driver, around.classOf);
  if (verdict.kind === 'no-class')
    return { kind: 'ignore', reason: `storageClass "${verdict.className}" not found` };
  if (verdict.kind === 'ignore') return verdict;
  if (around.hasVolume(uid)) return { kind: 'ignore', reason: 'the volume of the claim is there' };
  return job;
}

/** What a change means to the object's job. `edit`: somebody changed it, so a job that waits after
 * a failure has reason to look at once, as upstream's does. `none`: what sutler or the volume
 * controller wrote; the job knows, or does not need it. `back`: the object needs a job again, and
 * one of before may wait still. `going`: a volume is being deleted, by us or by a user who is tired
 * of waiting; only a job that waits should hear of it. */
export type ChangeVerdict = 'verdict' | 'back' | 'edit' | 'going' | 'none';

/** What a change of a claim means.
 * @param o.wasJob  the claim needed a job before the change too */
export function judgeClaimChange(
  claim: Claim,
  previous: Claim,
  o: { readonly wasJob: boolean; readonly driver: TriageDriver },
): ChangeVerdict {
  if (!o.wasJob) return isAnnotated(previous) ? 'back' : 'verdict';
  if (isToBeReleased(claim, o.driver) !== isToBeReleased(previous, o.driver)) return 'verdict';
  const isBinding =
    (claim.spec.volumeName ?? '') !== '' || claim.status?.phase !== previous.status?.phase;
  return isBinding || isUnchanged(claim, previous) ? 'none' : 'edit';
}

/** The volume controller has once asked for a volume of it: a claim that got a node for the first
 * time has no job that waits. */
function isAnnotated({ metadata }: Claim): boolean {
  return [STORAGE_PROVISIONER, BETA_STORAGE_PROVISIONER].some(
    (key) => metadata.annotations?.[key] !== undefined,
  );
}

/** What a change of a volume means. */
export function judgeVolumeChange(
  volume: Volume,
  previous: Volume,
  driver: DriverNames,
): ChangeVerdict {
  if (judgeVolume(previous, driver).kind !== judgeVolume(volume, driver).kind) return 'verdict';
  if (volume.status?.phase !== previous.status?.phase || isUnchanged(volume, previous))
    return 'none';
  return volume.metadata.deletionTimestamp === undefined ? 'edit' : 'going';
}

/** But for our own finalizers, which we put on and take off. */
function isUnchanged({ metadata }: Claim | Volume, { metadata: before }: Claim | Volume): boolean {
  return (
    metadata.resourceVersion === before.resourceVersion ||
    !isDeepStrictEqual(metadata.finalizers, before.finalizers)
  );
}

/** The source of clones, being deleted: its finalizer comes off when nobody clones from it any more
 * (spec 04 D). */
function isToBeReleased(claim: Claim, driver: TriageDriver): boolean {
  return driver.controllerCapabilities.has('CLONE_VOLUME') && isTerminatingCloneSource(claim);
}

/** Whether a volume needs a job. Two PVs of one handle are both left alone: deleting for one would
 * take the other's data. */
export function triageVolume(
  volume: Volume,
  driver: DriverNames,
  isHandleShared: (volume: Volume) => boolean,
): Triage {
  const verdict = judgeVolume(volume, driver);
  if (verdict.kind === 'ignore') return verdict;
  if (verdict.kind === 'delete' && isHandleShared(volume)) {
    const { id = '' } = identityOf(volume) ?? {};
    return {
      kind: 'refuse',
      reason: `another PersistentVolume has the handle ${id} too, so its volume is kept; remove one of the two by hand`,
    };
  }
  return {
    kind: 'job',
    key: { kind: 'volume', uid: volume.metadata.uid, namespace: '', name: volume.metadata.name },
  };
}
