import { CsiError } from '../../csi/status.ts';
import type { Volume } from '../../kube/objects.ts';
import type { Run } from '../../queue/consumer.ts';
import { shownReason } from '../../queue/outcome.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { isStillRunning } from '../../volumes/create-result.ts';
import type { DeletionPlan } from '../../volumes/plan-deletion.ts';
import { RefusedError, type WaitCondition } from '../../volumes/refused-error.ts';
import type { Attempt } from '../attempt.ts';
import { volumeWarning } from '../object-events.ts';
import { readDeletionSecrets } from './deletion-secrets.ts';
import { notReached } from '../not-reached.ts';
import type { ProcessorPorts } from '../ports.ts';
import { withoutSecrets } from '../secret-values.ts';

/** A volume that is to be deleted, and the run that is at it. */
interface VolumeRun {
  readonly volume: Volume;
  readonly run: Pick<Run, 'lastReason'>;
}

/** The record is open for the deletion, and this run owns it. */
interface OpenDeletion extends VolumeRun {
  readonly attempt: Attempt;
  readonly plan: Extract<DeletionPlan, { kind: 'delete' }>;
}

/** Has the driver delete the volume; every way out leaves the record as design §3 says.
 * @returns undefined when the volume is gone: the PV may go too */
export async function callDeleteVolume(
  ports: ProcessorPorts,
  deletion: OpenDeletion,
): Promise<Outcome | undefined> {
  const { attempt, plan, volume } = deletion;
  let secrets: Readonly<Record<string, string>>;
  try {
    secrets = await readDeletionSecrets(ports, plan.secret.ref);
  } catch (error) {
    await ports.records.revert(attempt.id, attempt.owner);
    if (error instanceof RefusedError) return refuseDeletion(ports, deletion, error);
    throw error;
  }
  try {
    await ports.csi.deleteVolume(
      { volumeId: plan.handle, secrets },
      {
        timeoutMs: ports.timeoutMs,
        notAfterMs: attempt.notAfterMs,
        gateway: attempt.gateway,
        migrated: plan.isMigrated,
      },
    );
  } catch (error) {
    if (error instanceof CsiError)
      return applyDeleteFailure(ports, deletion, withoutSecrets(error, Object.values(secrets)));
    throw error;
  }
  await ports.records.closeGone(attempt.id, attempt.owner);
  ports.log.info({ volume: volume.metadata.name, handle: plan.handle }, 'volume deleted');
  return undefined;
}

/** No call is made as things are. The event is sent when this is news, not at each try. */
export async function refuseDeletion(
  ports: Pick<ProcessorPorts, 'events'>,
  { volume, run }: VolumeRun,
  { message, waitsFor }: { readonly message: string; readonly waitsFor: readonly WaitCondition[] },
): Promise<Outcome> {
  if ((await run.lastReason()) !== shownReason(message)) volumeWarning(ports, volume, message);
  return waitsFor.length === 0
    ? { kind: 'retry', reason: message }
    : { kind: 'parked', reason: message, until: waitsFor };
}

async function applyDeleteFailure(
  ports: ProcessorPorts,
  { attempt, volume, run }: OpenDeletion,
  error: CsiError,
): Promise<Outcome> {
  const { codeName, message } = error;
  if (error.notForwarded) {
    await ports.records.revert(attempt.id, attempt.owner);
    return codeName === 'Aborted' ? { kind: 'running', reason: message } : notReached(error);
  }
  await ports.records.leaveDeleting(attempt.id, attempt.owner, codeName);
  // When the reason changes; the tenth deadline tells nobody anything new.
  if ((await run.lastReason()) !== shownReason(message)) volumeWarning(ports, volume, message);
  return { kind: isStillRunning(codeName) ? 'running' : 'retry', reason: message };
}
