import { CsiError, isFinal, isStillRunning } from '../../csi/status.ts';
import { MAX_SHARERS } from '../../hints/shared-handles.ts';
import { addFinalizer, removeFinalizer } from '../../kube/finalizers.ts';
import { VOLUME_FINALIZER } from '../../kube/keys.ts';
import { isConflict, isNotFound, isOutage, KubeError } from '../../kube/kube-error.ts';
import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import { type JobKey, workId } from '../../queue/contract.ts';
import { type Outcome, WORKER_STOPPING } from '../../queue/outcome.ts';
import type { Run } from '../../queue/run.ts';
import { askRedis } from '../../redis/ask-redis.ts';
import type { WaitCondition } from '../../rules/rule.ts';
import { traceHeaders, traceId } from '../../runtime/trace-id.ts';
import { type DeletionPlan, planDeletion, shouldDelete } from '../../volumes/deletion.ts';
import { identityOf, mayBeSame } from '../../volumes/handles.ts';
import { isOnNode } from '../../volumes/own-node.ts';
import { waitForClassLimit, withinClassLimit } from '../class-limit.ts';
import type { Dependencies, VolumeRun } from '../dependencies.ts';
import { finished, type MarkedJob, markJob, MAX_READ_AGE_MS } from '../mark-job.ts';
import {
  describeFailedCall,
  notForwarded,
  parkOrRetry,
  reportDeletionFailed,
  whyNodesAreUnknown,
} from '../outcomes.ts';
import { readSecretValues, type SecretProblem, type SecretValues } from '../secret-values.ts';

/** One run of a volume's job: reads the PV, adds or removes its finalizer, and deletes volume and
 * PV if the PV is Released with the policy Delete (docs/leak-proof.md, D1). The job ends when no
 * call of an earlier run can be at work in the driver any more. */
export async function reconcileVolume(deps: Dependencies, job: JobKey, run: Run): Promise<Outcome> {
  const limited = await waitForClassLimit(deps, job, run);
  if (limited !== undefined) return limited;
  const startMs = deps.clock.nowMs();
  const begun = await askRedis(run.begun());
  const volume = await deps.kube.get<Volume>(volumes, { name: job.name });
  if (volume?.metadata.uid !== job.uid) {
    const note = volume === undefined ? 'the volume is gone' : 'another volume has the name now';
    return finished(note, begun.leftMs);
  }
  const verdict = shouldDelete(volume, deps.facts());
  switch (verdict.kind) {
    case 'ignore':
      return finished(verdict.reason, begun.leftMs);
    case 'add-finalizer':
    case 'remove-finalizer': {
      const outcome = await setVolumeFinalizer(deps, volume, verdict.kind === 'add-finalizer');
      return outcome.kind === 'done' ? finished(outcome.note ?? '', begun.leftMs) : outcome;
    }
    case 'delete':
      return deleteReleasedVolume({ ...deps, job, run, startMs, begun, volume });
  }
}

/** Adds or removes our finalizer, which keeps the PV until the driver has deleted the volume. A
 * failure gets no event, since users can do nothing about it. */
async function setVolumeFinalizer(
  { kube }: Dependencies,
  volume: Volume,
  isWanted: boolean,
): Promise<Outcome> {
  const target = { resource: volumes, object: volume, finalizer: VOLUME_FINALIZER };
  try {
    await (isWanted ? addFinalizer(kube, target) : removeFinalizer(kube, target));
    return { kind: 'done', note: `the PV ${isWanted ? 'has' : 'does not have'} our finalizer` };
  } catch (error) {
    if (isNotFound(error)) return { kind: 'done', note: 'the volume is gone' };
    if (!(error instanceof KubeError)) throw error;
    const { name, finalizers = [] } = volume.metadata;
    const others = finalizers.filter((other) => other !== VOLUME_FINALIZER);
    const list = isWanted ? [...others, VOLUME_FINALIZER] : others;
    const change = `failed to modify finalizers to [${list.join(' ')}] on volume ${name}`;
    const reason = `${change} err: ${error.message}`;
    return { kind: isOutage(error) ? 'later' : 'retry', reason };
  }
}

/** Deletes the volume of a Released PV, then the PV, and counts the attempt in upstream's metrics.
 * @throws KubeError, RedisUnavailable */
async function deleteReleasedVolume(volumeRun: VolumeRun): Promise<Outcome> {
  const { counts, volume } = volumeRun;
  try {
    const outcome = await attemptDeletion(volumeRun);
    if (outcome.kind !== 'done' && outcome.kind !== 'later') counts.countNotDeleted(volume);
    return outcome;
  } catch (error) {
    if (error instanceof KubeError) counts.countNotDeleted(volume);
    throw error;
  }
}

async function attemptDeletion(volumeRun: VolumeRun): Promise<Outcome> {
  const { attachedTo, classOf, facts, log, run, volume } = volumeRun;
  const left = leaveToItsNode(volumeRun, volume);
  if (left !== undefined) return left;
  const plan = planDeletion(volume, { driver: facts(), classOf, attachedTo });
  if (plan.kind === 'refuse') return refuseDeletion(volumeRun, plan);
  if (plan.secret.note !== undefined)
    log.warn(
      { volume: volume.metadata.name, reason: plan.secret.note },
      'the volume is deleted without a secret',
    );
  if (run.signal.aborted) return WORKER_STOPPING;
  const cls = classOf(volume.spec.storageClassName ?? '');
  return withinClassLimit(volumeRun, { cls, isNeeded: true }, () =>
    deleteInDriver(volumeRun, plan),
  );
}

/** Ends the run of a volume on another node; undefined if this process deletes the volume. */
function leaveToItsNode(deps: Dependencies, volume: Volume): Outcome | undefined {
  const { name: driver, ownNode: node } = deps.facts();
  if (node === undefined) return undefined;
  const unknown = whyNodesAreUnknown(deps);
  if (unknown !== undefined) return unknown;
  const topology = deps.topology();
  const labels = topology && (topology.node(node)?.labels ?? {});
  return isOnNode(volume, { driver, node, labels })
    ? undefined
    : { kind: 'done', note: `the volume is not on node ${node}` };
}

/** Ends the run of a volume that can't be deleted now. */
function refuseDeletion(
  { events, volume }: VolumeRun,
  { message, waitsFor }: { readonly message: string; readonly waitsFor: readonly WaitCondition[] },
): Outcome {
  reportDeletionFailed(events, volume, message);
  return parkOrRetry(message, waitsFor);
}

/** Has the driver delete the volume, then deletes its PV. */
async function deleteInDriver(
  volumeRun: VolumeRun,
  { handle, isMigrated, secret }: Extract<DeletionPlan, { kind: 'delete' }>,
): Promise<Outcome> {
  const { capacity, clock, counts, kube, log, job, startMs, volume } = volumeRun;
  const secrets = await readSecretValues(kube, secret.ref);
  if (secrets.kind !== 'values') return refuseWithoutSecret(volumeRun, secrets);
  const shared = await refuseIfShared(volumeRun);
  if (shared !== undefined) return shared;
  if (clock.nowMs() - startMs > MAX_READ_AGE_MS) return READ_TOO_OLD;
  const mark = await markJob(volumeRun);
  if ('outcome' in mark) return mark.outcome;
  const { endpoint: gateway } = mark;
  const id = workId(job);
  const notAfterMs = Math.min(mark.notAfterMs, startMs + MAX_READ_AGE_MS);
  const call = { id, handle, isMigrated, gateway, notAfterMs };
  const error = await sendDeleteVolume(volumeRun, call, secrets.values);
  if (error !== undefined) return endFailedDeletion(volumeRun, mark, error);
  capacity.volumeChanged(volume.spec);
  log.info({ volume: volume.metadata.name, trace: traceId(id), handle }, 'volume deleted');
  const outcome = await deletePersistentVolume(volumeRun, mark);
  if (outcome.kind !== 'done') return outcome;
  counts.countDeleted(volume, clock.nowMs() - startMs);
  return mark.finished(outcome.note ?? '');
}

/** The next run comes soon enough to use the same list of PVs. */
const READ_TOO_OLD: Outcome = {
  kind: 'later',
  reason: 'reading took too long, and the volume may have changed: the next run reads it again',
};

/** Refuses a deletion without its secret: a driver that gets none may keep the volume and report
 * success.
 * @throws KubeError if the API server is down */
function refuseWithoutSecret(
  volumeRun: VolumeRun,
  { kind, ref, error, message, waitsFor }: SecretProblem,
): Outcome {
  if (error !== undefined && isOutage(error)) throw error;
  const missing = `secret ${ref.namespace}/${ref.name} for deleting this volume does not exist`;
  const reason = kind === 'missing' ? `${missing}; create it again` : message;
  return refuseDeletion(volumeRun, { message: reason, waitsFor });
}

/** Checks as late as possible whether another PV has the same handle (invariant 6), since one may
 * be created while a deletion backs off. Costs no request unless ingest names such a PV, or has
 * published no view; then reads that PV, which may be gone.
 * @returns how the run ends; undefined if there is no other PV
 * @throws KubeError, RedisUnavailable */
async function refuseIfShared(volumeRun: VolumeRun): Promise<Outcome | undefined> {
  const { kube, sharersOf, volume } = volumeRun;
  const identity = identityOf(volume);
  if (identity === undefined) return undefined;
  const names = await sharersOf(identity);
  for (const name of names) {
    if (name === volume.metadata.name) continue;
    const other = await kube.get<Volume>(volumes, { name });
    if (other === undefined || !mayBeSame(other, volume)) continue;
    const { resourceVersion: seen } = other.metadata;
    const waitsFor = [{ resource: volumes.plural, name, seen }];
    const message =
      `PersistentVolume ${name} has the same handle, so the volume is kept; ` +
      'remove one of the two by hand';
    return refuseDeletion(volumeRun, { message, waitsFor });
  }
  if (names.length < MAX_SHARERS) return undefined;
  const reason = 'too many PersistentVolumes may have this handle; trying again';
  return { kind: 'later', reason };
}

interface DeleteCall {
  /** The claim's UID, or the PV's: the trace of the call. */
  readonly id: string;
  readonly handle: string;
  readonly isMigrated: boolean;
  readonly gateway: string;
  /** Unix ms after which it must not be sent. */
  readonly notAfterMs: number;
}

/** Sends DeleteVolume. Every DeleteVolume is sent here.
 * @returns why it failed; undefined if the volume is gone */
export async function sendDeleteVolume(
  { csi, timeoutMs }: Pick<Dependencies, 'csi' | 'timeoutMs'>,
  { id, handle, isMigrated: migrated, gateway, notAfterMs }: DeleteCall,
  secrets: SecretValues,
): Promise<CsiError | undefined> {
  const metadata = traceHeaders(id);
  const settings = { timeoutMs, notAfterMs, gateway, migrated, metadata };
  try {
    await csi.deleteVolume({ volumeId: handle, secrets }, settings);
  } catch (error) {
    if (!(error instanceof CsiError)) throw error;
    return error;
  }
  return undefined;
}

/** Ends the run of a volume whose DeleteVolume has failed. A `retry` outcome is delayed by
 * src/queue/outcome.ts, as for creations. */
async function endFailedDeletion(
  volumeRun: VolumeRun,
  mark: MarkedJob,
  error: CsiError,
): Promise<Outcome> {
  const { events, volume } = volumeRun;
  const report = (message: string): void => reportDeletionFailed(events, volume, message);
  if (error.notForwarded || isFinal(error)) await mark.undo(false);
  if (error.notForwarded) return notForwarded(error, report);
  const { reason, event } = await describeFailedCall(volumeRun, error);
  report(event);
  return { kind: isStillRunning(error.codeName) ? 'running' : 'retry', reason };
}

/** Deletes the PV of a volume that the driver has deleted. Already gone counts as success. */
async function deletePersistentVolume(volumeRun: VolumeRun, mark: MarkedJob): Promise<Outcome> {
  const { kube, volume } = volumeRun;
  const { name, uid } = volume.metadata;
  const timeoutMs = mark.writeLimitMs();
  if (timeoutMs === undefined)
    return { kind: 'later', reason: 'the driver answered too late; the next run deletes the PV' };
  const limits = { preconditions: { uid }, timeoutMs };
  let left: Volume | undefined;
  try {
    left = await kube.delete<Volume>(volumes, { name }, limits);
  } catch (error) {
    if (isConflict(error))
      return { kind: 'later', reason: `volume ${name} changed meanwhile`, delayMs: 0 };
    throw error;
  }
  // The answer is the PV if it still has finalizers, else a Status.
  if (left?.metadata?.finalizers === undefined) return { kind: 'done', note: `deleted ${name}` };
  return setVolumeFinalizer(volumeRun, left, false);
}
