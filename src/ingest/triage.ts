import { CLAIM_FINALIZER } from '../kube/keys.ts';
import type { Claim, Class, Volume } from '../kube/objects.ts';
import type { JobKey } from '../queue/contract.ts';
import { judgeVolume } from '../volumes/deletion.ts';
import { judgeClaim } from '../volumes/eligibility.ts';
import type { DriverNames } from '../volumes/provisioning-options.ts';

/** What becomes of a hint: a job, or a reason to leave it. */
export type Triage = { readonly kind: 'job'; readonly key: JobKey } | { readonly kind: 'ignore'; readonly reason: string };

/** Whether a claim needs a job. A claim without its class gets none: the class's arrival brings it here again. */
export function triageClaim(claim: Claim, driver: DriverNames, classOf: (name: string) => Class | undefined): Triage {
  const { uid, namespace, name } = claim.metadata;
  const job: Triage = { kind: 'job', key: { kind: 'claim', uid, namespace: namespace ?? '', name } };
  // Whatever became of the claim, the finalizer of an earlier run has to come off once nothing is open.
  if (claim.metadata.finalizers?.includes(CLAIM_FINALIZER) === true) return job;
  const verdict = judgeClaim(claim, driver, classOf);
  if (verdict.kind === 'no-class') return { kind: 'ignore', reason: `storageClass "${verdict.className}" not found` };
  if (verdict.kind === 'ignore') return verdict;
  return job;
}

/** Whether a volume needs a job. Two PVs of one handle are both left alone: deleting for one would take the other's data. */
export function triageVolume(volume: Volume, driver: DriverNames, isHandleShared: (volume: Volume) => boolean): Triage {
  const verdict = judgeVolume(volume, driver);
  if (verdict.kind === 'ignore') return verdict;
  if (verdict.kind === 'delete' && isHandleShared(volume)) {
    return {
      kind: 'ignore',
      reason: `another PersistentVolume has the handle ${volume.spec.csi?.volumeHandle ?? ''}; delete one of the two by hand`,
    };
  }
  return { kind: 'job', key: { kind: 'volume', uid: volume.metadata.uid, namespace: '', name: volume.metadata.name } };
}
