import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { DUPLICATE_LEFT } from '../../records/forget.ts';
import { planDeletion, shouldDelete } from '../../volumes/deletion.ts';
import { compareVolumes } from '../../volumes/handles.ts';
import { completeVolume } from '../../volumes/persistent-volume.ts';
import { type Attempt, MAX_READ_AGE_MS } from '../attempt.ts';
import { waitForRecord } from '../common-outcomes.ts';
import { fitsVolume } from '../claim/unusable-record.ts';
import { sendStored } from '../claim/call-create-volume.ts';
import { type CreatedVolume, keepAnswer } from '../claim/creation.ts';
import { handleDuplicateVolume } from '../claim/handle-duplicate.ts';
import type { VolumeRun } from '../report-events.ts';
import { readClaim } from '../read-claims.ts';
import { callDeleteVolume, refuseDeletion } from './call-delete-volume.ts';
import type { ProcessorPorts } from '../ports.ts';

/** Repeats the CreateVolume of a volume before its deletion, because its creation is open: only its
 * success proves that no earlier call is still at work (record rule 5). The PV exists already, so
 * the answer is only compared with it.
 * @returns undefined if the driver has deleted the PV's volume, and its PV may be deleted */
export async function resolveCreation(
  ports: ProcessorPorts,
  attempt: Attempt,
  { volume, run }: VolumeRun,
): Promise<Outcome | undefined> {
  const whyUnfit = fitsVolume(ports, attempt.id, volume);
  const opened = await ports.records.openExisting(attempt.id, { ...attempt, whyUnfit });
  if (opened.kind === 'unusable')
    return refuseDeletion(ports, { volume, run }, { message: opened.reason, waitsFor: [] });
  if (opened.kind === 'busy' || opened.kind === 'not-yet') return waitForRecord(opened);
  if (opened.kind !== 'replay')
    return { kind: 'later', reason: 'the volume record changed meanwhile', delayMs: 0 };
  const claimAttempt = { attempt, claim: undefined, run };
  let isDeleted = false;
  const outcome = await sendStored(ports, claimAttempt, opened, async (_, created) => {
    if (
      compareVolumes(volume, completeVolume(created.stored.pvTemplate, created.answer)) !== 'same'
    ) {
      const left = await deleteBesideAnswer(ports, created, volume);
      isDeleted = left === undefined;
      return left ?? { kind: 'done' };
    }
    await ports.records.closeStored(attempt.id, attempt.owner);
    return { kind: 'done' };
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
  ports: ProcessorPorts,
  created: CreatedVolume,
  volume: Volume,
): Promise<Outcome | undefined> {
  const { attempt, run, stored } = created;
  const { classOf, attachedTo } = ports;
  const { name, uid } = volume.metadata;
  const driver = ports.driver();
  const keep = () => keepAnswer(ports, created, DUPLICATE_LEFT);
  const keepAndThrow = async (error: unknown): Promise<never> => {
    await keep();
    throw error;
  };
  const { namespace = '', name: claimName = '', uid: claimUid = '' } = volume.spec.claimRef ?? {};
  const claimRef = { namespace, name: claimName, uid: claimUid };
  const claim = await readClaim(ports, claimRef).catch(keepAndThrow);
  if (claim !== undefined)
    return handleDuplicateVolume(ports, { ...created, claim }, volume.metadata);
  const readMs = ports.clock.nowMs();
  const current = await ports.kube.get<Volume>(volumes, { name }).catch(keepAndThrow);
  const isStillDue =
    current?.metadata.uid === uid && shouldDelete(current, driver).kind === 'delete';
  const plan = isStillDue ? planDeletion(current, { driver, classOf, attachedTo }) : undefined;
  if (plan?.kind !== 'delete') {
    await keep();
    return { kind: 'later', reason: `volume ${name} changed meanwhile`, delayMs: 0 };
  }
  const ends = { notSent: keep, unknown: keep, deleted: keep };
  const notAfterMs = Math.min(attempt.notAfterMs, readMs + MAX_READ_AGE_MS);
  const gateway = stored.endpoint;
  return callDeleteVolume(ports, { ends, volume, run, plan, gateway, notAfterMs });
}
