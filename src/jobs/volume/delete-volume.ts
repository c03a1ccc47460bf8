import { CsiError, isFinal, isStillRunning } from '../../csi/status.ts';
import { isOutage } from '../../kube/kube-error.ts';
import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { MAX_SHARERS } from '../../hints/shared-handles.ts';
import type { WaitCondition } from '../../rules/rule.ts';
import { traceHeaders } from '../../runtime/trace-id.ts';
import { identityOf, mayBeSame } from '../../volumes/handles.ts';
import type { Dependencies, VolumeRun } from '../dependencies.ts';
import type { MarkedJob } from '../mark-job.ts';
import {
  describeFailedCall,
  notForwarded,
  parkOrRetry,
  reportDeletionFailed,
} from '../outcomes.ts';
import type { SecretProblem, SecretValues } from '../secret-values.ts';

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

/** Refuses a deletion without its secret: a driver that is called without one may leave the volume
 * behind and say that it is gone.
 * @throws KubeError if the API server is down */
export function refuseWithoutSecret(
  volumeRun: VolumeRun,
  { kind, ref, error, message, waitsFor }: SecretProblem,
): Outcome {
  if (error !== undefined && isOutage(error)) throw error;
  const missing = `secret ${ref.namespace}/${ref.name} of this volume's deletion is not there`;
  const reason = kind === 'missing' ? `${missing}; create it again` : message;
  return refuseDeletion(volumeRun, { message: reason, waitsFor });
}

/** Looks, as late as possible, whether another PV stands for the volume (invariant 6): it may be
 * created while a deletion backs off. Costs no API request unless there may be one, or nothing is
 * published; then that PV is read, since it may be gone by now.
 * @returns how the run ends; undefined if there is no other PV
 * @throws KubeError, RedisUnavailable */
export async function refuseIfShared(volumeRun: VolumeRun): Promise<Outcome | undefined> {
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
  const reason = 'more PersistentVolumes than ingest could name may have the handle; trying again';
  return { kind: 'later', reason };
}

/** Ends the run of a volume that can't be deleted as things are. */
export function refuseDeletion(
  { events, volume }: VolumeRun,
  { message, waitsFor }: { readonly message: string; readonly waitsFor: readonly WaitCondition[] },
): Outcome {
  reportDeletionFailed(events, volume, message);
  return parkOrRetry(message, waitsFor);
}

/** Ends the run of a volume whose DeleteVolume has failed. A `retry` outcome is delayed by
 * src/queue/outcome.ts, as for creations. */
export async function endFailedDeletion(
  { events, timeoutMs, run, volume }: VolumeRun,
  mark: MarkedJob,
  error: CsiError,
): Promise<Outcome> {
  const report = (message: string): void => reportDeletionFailed(events, volume, message);
  if (error.notForwarded || isFinal(error)) await mark.undo(false);
  if (error.notForwarded) return notForwarded(error, report);
  const { reason, event } = await describeFailedCall({ timeoutMs }, run, error);
  report(event);
  return { kind: isStillRunning(error.codeName) ? 'running' : 'retry', reason };
}
