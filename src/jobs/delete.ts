import { CsiError } from '../csi/status.ts';
import { VOLUME_FINALIZER } from '../kube/keys.ts';
import { isConflict, isNotFound, KubeError } from '../kube/kube-error.ts';
import type { Volume } from '../kube/objects.ts';
import { secrets as secretsResource, volumes } from '../kube/resources.ts';
import type { Run } from '../queue/consumer.ts';
import type { JobKey } from '../queue/contract.ts';
import type { Outcome } from '../queue/outcome.ts';
import { deletionSecret, judgeVolume, recordId, vanishedRecordIds } from '../volumes/deletion.ts';
import { isStillRunning } from '../volumes/create-result.ts';
import { missingCapability } from '../volumes/provisioning-options.ts';
import { hold, sentThrough, startAttempt } from './attempt.ts';
import type { Attempt } from './attempt.ts';
import { volumeWarning } from './claim-events.ts';
import { createVolume } from './create-volume.ts';
import type { ProcessorPorts } from './ports.ts';
import { notReached } from './not-reached.ts';
import { readSecretValues, withoutSecrets } from './secret-values.ts';
import { removeSurplus } from './store-volume.ts';

/** How old the look at the PV may be when DeleteVolume is sent (invariant 7). */
const FRESH_MS = 2_000;

/** One run of a volume's job: reads the PV afresh, keeps its finalizer right, and where it is to be deleted, deletes volume and PV. */
export async function deleteVolume(ports: ProcessorPorts, job: JobKey, run: Pick<Run, 'signal'>): Promise<Outcome> {
  const readMs = ports.clock.nowMs();
  const { epoch } = ports.records;
  const volume = await ports.kube.get<Volume>(volumes, { name: job.name });
  if (volume === undefined) return vanished(ports, job);
  if (volume.metadata.uid !== job.uid) return { kind: 'done', note: 'another volume has the name now' };
  const verdict = judgeVolume(volume, ports.driver());
  const id = recordId(volume, ports.options);
  switch (verdict.kind) {
    case 'ignore':
      // A deletion that was begun before somebody changed the policy, and took our finalizer off, is over too.
      if (volume.spec.persistentVolumeReclaimPolicy !== 'Delete') await ports.records.endDeletion(id, ports.newOwner(), 'stored');
      return { kind: 'done', note: verdict.reason };
    case 'add-finalizer':
      return patchFinalizers(ports, volume, { add: true });
    case 'remove-finalizer':
      // A deletion that was begun before the policy changed is over; one that is under way is waited for.
      if ((await ports.records.endDeletion(id, ports.newOwner(), 'stored')) === 'busy')
        return { kind: 'running', reason: 'a deletion is under way' };
      return patchFinalizers(ports, volume, { add: false });
    case 'delete':
      break;
  }
  const missing = missingCapability(ports.driver());
  if (missing !== undefined) return refused(ports, volume, missing);
  const [node] = ports.attachedTo(volume.metadata.name);
  if (node !== undefined) return refused(ports, volume, `persistentvolume ${volume.metadata.name} is still attached to node ${node}`);
  if (volume.spec.csi === undefined) return refused(ports, volume, 'invalid CSI PV');
  if (run.signal.aborted) return { kind: 'later', reason: 'this worker is stopping', delayMs: 0 };

  const attempt = startAttempt(
    { nowMs: ports.clock.nowMs(), writeAllowanceMs: ports.writeAllowanceMs },
    { id, owner: ports.newOwner(), job, epoch },
  );
  const opened = await ports.records.openDelete(id, hold(attempt));
  switch (opened.kind) {
    case 'opened':
      return destroy(
        ports,
        { ...sentThrough(attempt, opened.endpoint), notAfterMs: Math.min(attempt.notAfterMs, readMs + FRESH_MS) },
        volume,
      );
    case 'gone':
      return removeObject(ports, volume);
    case 'resolve':
    case 'creating':
      return resolve(ports, { attempt, volume, isOpen: opened.kind === 'creating' });
    case 'not-yet':
      return { kind: 'later', reason: opened.reason, delayMs: opened.waitMs };
    case 'busy':
      return { kind: 'running', reason: `another run is at this volume (${opened.state})` };
    case 'settle':
      return { kind: 'later', reason: 'a call of unknown end may still be at work in the driver', delayMs: opened.waitMs };
  }
}

async function destroy(ports: ProcessorPorts, attempt: Attempt, volume: Volume): Promise<Outcome> {
  const { records } = ports;
  const ref = deletionSecret(volume.metadata);
  let secrets: Record<string, string> | undefined;
  try {
    secrets = ref === undefined ? {} : await readSecretValues(ports, ref);
    if (secrets === undefined) {
      await records.restore(attempt.id, attempt.owner);
      const reason = `secret ${ref?.namespace}/${ref?.name} of this volume's deletion is not there; create it again`;
      volumeWarning(ports, volume, reason);
      return { kind: 'parked', reason, ...(ref === undefined ? {} : { until: { resource: secretsResource.plural, ...ref, seen: '' } }) };
    }
    await ports.csi.deleteVolume(
      { volumeId: volume.spec.csi?.volumeHandle ?? '', secrets },
      { timeoutMs: ports.timeoutMs, notAfterMs: attempt.notAfterMs, gateway: attempt.gateway },
    );
  } catch (error) {
    if (error instanceof KubeError) {
      await records.restore(attempt.id, attempt.owner);
      return refused(ports, volume, `error getting secret ${ref?.name} in namespace ${ref?.namespace}: ${error.message}`);
    }
    if (!(error instanceof CsiError)) throw error;
    if (error.notForwarded) {
      await records.restore(attempt.id, attempt.owner);
      return error.codeName === 'Aborted' ? { kind: 'running', reason: error.message } : notReached(error);
    }
    const before = await records.leaveDeleting(attempt.id, attempt.owner, error.codeName);
    const { message } = withoutSecrets(error, Object.values(secrets ?? {}));
    // A driver that is still at it needs no warning, and is asked again gently.
    if (isStillRunning(error.codeName)) return { kind: 'running', reason: message };
    if (before !== error.codeName) volumeWarning(ports, volume, message);
    return { kind: 'retry', reason: message };
  }
  await records.closeGone(attempt.id, attempt.owner);
  ports.log.info({ volume: volume.metadata.name, handle: volume.spec.csi?.volumeHandle }, 'volume deleted');
  return removeObject(ports, volume);
}

/** A creation of this volume is open, or ended without an answer once: only its success proves that nothing of it is still at work (rule 5).
 * The PV is there already, so the answer is only compared with it. */
async function resolve(ports: ProcessorPorts, found: { attempt: Attempt; volume: Volume; isOpen: boolean }): Promise<Outcome> {
  const { attempt, volume, isOpen } = found;
  const opened = await (isOpen
    ? ports.records.openExisting(attempt.id, hold(attempt))
    : ports.records.openResolve(attempt.id, hold(attempt)));
  if (opened.kind === 'busy') return { kind: 'running', reason: `another run is at this volume (${opened.state})` };
  if (opened.kind === 'not-yet') return { kind: 'later', reason: opened.reason, delayMs: opened.waitMs };
  if (opened.kind !== 'replay') return { kind: 'later', reason: 'the volume record changed meanwhile', delayMs: 0 };
  const outcome = await createVolume(ports, {
    attempt: sentThrough(attempt, opened.stored.endpoint),
    claim: undefined,
    stored: opened.stored,
    replayed: opened,
    keep: async (_, made) => {
      if (made.answer.handle !== volume.spec.csi?.volumeHandle) return removeSurplus(ports, made, volume);
      await ports.records.closeStored(attempt.id, attempt.owner, 'answered');
      return { kind: 'done' };
    },
  });
  return outcome.kind === 'done' ? { kind: 'later', reason: 'the creation is resolved; the deletion follows', delayMs: 0 } : outcome;
}

/** Somebody took our finalizer off: what was open of a deletion is over. */
async function vanished(ports: ProcessorPorts, job: JobKey): Promise<Outcome> {
  for (const id of vanishedRecordIds(job, ports.options)) await ports.records.endDeletion(id, ports.newOwner(), 'gone');
  return { kind: 'done', note: 'the volume is gone' };
}

async function removeObject(ports: ProcessorPorts, volume: Volume): Promise<Outcome> {
  const { name, uid } = volume.metadata;
  let left: Volume | undefined;
  try {
    left = await ports.kube.delete<Volume>(volumes, { name }, { preconditions: { uid } });
  } catch (error) {
    // Another object has the name now: ours is gone.
    if (error instanceof KubeError && isConflict(error)) return { kind: 'done', note: 'the volume is gone' };
    throw error;
  }
  if (left?.metadata?.finalizers?.includes(VOLUME_FINALIZER) !== true) return { kind: 'done', note: `deleted ${name}` };
  return patchFinalizers(ports, left, { add: false });
}

/** Adds or removes our finalizer and touches no other; the patch names the UID, so that a namesake is left alone. */
async function patchFinalizers(ports: ProcessorPorts, volume: Volume, { add }: { add: boolean }): Promise<Outcome> {
  const { name, uid } = volume.metadata;
  const others = (volume.metadata.finalizers ?? []).filter((finalizer) => finalizer !== VOLUME_FINALIZER);
  const finalizers = add
    ? { finalizers: [VOLUME_FINALIZER], '$setElementOrder/finalizers': [...others, VOLUME_FINALIZER] }
    : { '$deleteFromPrimitiveList/finalizers': [VOLUME_FINALIZER], '$setElementOrder/finalizers': others };
  try {
    await ports.kube.patch(volumes, { name }, { type: 'strategic', body: { metadata: { uid, ...finalizers } } });
  } catch (error) {
    if (isNotFound(error) || isConflict(error)) return { kind: 'done', note: 'the volume is gone' };
    if (!(error instanceof Error)) throw error;
    const words = `failed to modify finalizers of volume ${name}: ${error.message}`;
    return { kind: 'retry', reason: words, error };
  }
  return { kind: 'done', note: add ? 'finalizer added' : 'finalizer removed' };
}

function refused(ports: ProcessorPorts, volume: Volume, message: string): Promise<Outcome> {
  volumeWarning(ports, volume, message);
  return Promise.resolve({ kind: 'retry', reason: message });
}
