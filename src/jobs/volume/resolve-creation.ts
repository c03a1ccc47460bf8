import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { DUPLICATE_LEFT } from '../../records/forget.ts';
import { shouldDelete } from '../../volumes/deletion.ts';
import { compareVolumes } from '../../volumes/handles.ts';
import { completeVolume } from '../../volumes/persistent-volume.ts';
import { type Attempt, MAX_READ_AGE_MS, type VolumeRun } from '../attempt.ts';
import { fitsVolume } from '../claim/continue-record.ts';
import { sendStored } from '../claim/create-volume.ts';
import { type CreatedVolume, handleDuplicateVolume, keepAnswer } from '../claim/store-volume.ts';
import type { Dependencies } from '../dependencies.ts';
import { waitForRecord } from '../outcomes.ts';
import { readClaim } from '../read-objects.ts';
import { callDeleteVolume, planDeletionOf, refuseDeletion } from './delete-volume.ts';

/** Repeats the CreateVolume of a volume before its deletion, because its creation is open: only its
 * success proves that no earlier call is still at work (record rule 5). The PV exists already, so
 * the answer is only compared with it.
 * @returns undefined if the driver has deleted the PV's volume, and its PV may be deleted */
export async function resolveCreation(
  deps: Dependencies,
  attempt: Attempt,
  { volume, run }: VolumeRun,
): Promise<Outcome | undefined> {
  const { records } = deps.redis;
  const whyUnfit = fitsVolume(deps, attempt.id, volume);
  const opened = await records.openExisting(attempt.id, { ...attempt, whyUnfit });
  if (opened.kind === 'unusable')
    return refuseDeletion(deps.cluster.events, volume, { message: opened.reason, waitsFor: [] });
  if (opened.kind === 'busy' || opened.kind === 'not-yet') return waitForRecord(opened);
  if (opened.kind !== 'replay')
    return { kind: 'later', reason: 'the volume record changed meanwhile', delayMs: 0 };
  let isDeleted = false;
  const claimAttempt = { attempt, claim: undefined, run };
  const outcome = await sendStored(deps, claimAttempt, opened, async (_, created) => {
    const answered = completeVolume(created.stored.pvTemplate, created.answer);
    if (compareVolumes(volume, answered) === 'same') {
      await records.closeStored(attempt.id, attempt.owner);
      return { kind: 'done' };
    }
    const left = await deleteBesideAnswer(deps, created, volume);
    isDeleted = left === undefined;
    return left ?? { kind: 'done' };
  });
  if (isDeleted) return undefined;
  return outcome.kind === 'done'
    ? { kind: 'later', reason: 'the creation is resolved; the deletion follows', delayMs: 0 }
    : outcome;
}

/** Deletes the volume of a Released PV although the driver's answer names another one, as when it
 * has deleted the volume and Redis lost that it did. The claim is gone and the PV asks for the
 * deletion, so it is not deleted as a duplicate (invariant 5). The record keeps the answer: when
 * the PV is gone, one is written for it, which becomes Released and is deleted in its turn.
 * @returns undefined if the driver has deleted the PV's volume */
async function deleteBesideAnswer(
  deps: Dependencies,
  created: CreatedVolume,
  volume: Volume,
): Promise<Outcome | undefined> {
  const { kube } = deps.cluster;
  const { attempt, run, stored } = created;
  const { name, uid } = volume.metadata;
  const keep = () => keepAnswer(deps, created, DUPLICATE_LEFT);
  const keepAndThrow = async (error: unknown): Promise<never> => {
    await keep();
    throw error;
  };
  const { namespace = '', name: claimName = '', uid: claimUid = '' } = volume.spec.claimRef ?? {};
  const claimRef = { namespace, name: claimName, uid: claimUid };
  const claim = await readClaim(kube, claimRef).catch(keepAndThrow);
  if (claim !== undefined)
    return handleDuplicateVolume(deps, { ...created, claim }, volume.metadata);
  const readMs = deps.clock.nowMs();
  const current = await kube.get<Volume>(volumes, { name }).catch(keepAndThrow);
  const isStillDue =
    current?.metadata.uid === uid && shouldDelete(current, deps.driver.facts()).kind === 'delete';
  const plan = isStillDue ? planDeletionOf(deps, current) : undefined;
  if (plan?.kind !== 'delete') {
    await keep();
    return { kind: 'later', reason: `volume ${name} changed meanwhile`, delayMs: 0 };
  }
  const ends = { notSent: keep, unknown: keep, deleted: keep };
  const notAfterMs = Math.min(attempt.notAfterMs, readMs + MAX_READ_AGE_MS);
  const gateway = stored.endpoint;
  const { id } = attempt;
  return callDeleteVolume(deps, { id, ends, volume, run, plan, gateway, notAfterMs });
}
