import { CsiError } from '../../csi/status.ts';
import { isOutage } from '../../kube/kube-error.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { isStillRunning } from '../../volumes/create-result.ts';
import { explainShared } from '../../volumes/handles.ts';
import { VIEW_CONDITION } from '../../records/shared-handles.ts';
import type { DeletionPlan } from '../../volumes/deletion.ts';
import type { WaitCondition } from '../../rules/rule.ts';
import type { Attempt } from '../attempt.ts';
import { handleNotForwarded, isDriverDown, parkOrRetry } from '../common-outcomes.ts';
import { noteReached } from '../../queue/run.ts';
import { reportDeletionFailed, type VolumeRun } from '../report-events.ts';
import type { ProcessorPorts } from '../ports.ts';
import { readSecretValues, type SecretProblem } from '../secret-values.ts';
import { findSharer } from './find-sharer.ts';

/** How the record of a deletion is left. */
interface RecordEnds {
  readonly notSent: () => Promise<unknown>;
  /** The driver may or may not have deleted the volume. */
  readonly unknown: (code: string) => Promise<unknown>;
  readonly deleted: () => Promise<unknown>;
}

/** The ends of a record that is open for the deletion. */
export function deletionEnds(ports: ProcessorPorts, { id, owner }: Attempt): RecordEnds {
  const { records } = ports;
  return {
    notSent: () => records.revert(id, owner),
    unknown: (code) => records.leaveDeleting(id, owner, code),
    deleted: () => records.closeGone(id, owner),
  };
}

/** A deletion whose record this run owns. */
interface OpenDeletion extends VolumeRun {
  readonly ends: RecordEnds;
  readonly plan: Extract<DeletionPlan, { kind: 'delete' }>;
  readonly gateway: string;
  /** Unix ms after which DeleteVolume must not be sent. */
  readonly notAfterMs: number;
}

/** Has the driver delete the volume. Then the record is closed if the driver did so, reverted if
 * nothing was sent, and open for deletion otherwise. A `retry` outcome is delayed by
 * src/queue/outcome.ts, as for creations.
 * @returns undefined if the volume is gone, so that its PV may be deleted
 * @throws KubeError if the API server is down */
export async function callDeleteVolume(
  ports: ProcessorPorts,
  deletion: OpenDeletion,
): Promise<Outcome | undefined> {
  const { ends, plan, run, volume, gateway, notAfterMs } = deletion;
  const { timeoutMs } = ports;
  const secrets = await readSecretValues(ports, plan.secret.ref);
  if (secrets.kind !== 'values') return handleSecretProblem(ports, deletion, secrets);
  const refused = await refuseIfShared(ports, deletion);
  if (refused !== undefined) return refused;
  try {
    const call = ports.csi.deleteVolume(
      { volumeId: plan.handle, secrets: secrets.values },
      { timeoutMs, notAfterMs, gateway, migrated: plan.isMigrated, stopping: run.signal },
    );
    await noteReached(run, call);
  } catch (error) {
    if (!(error instanceof CsiError)) throw error;
    return handleFailure(ports, deletion, error);
  }
  await ends.deleted();
  ports.capacity.volumeChanged(volume.spec);
  await ports.nodeLocal?.room.grown();
  ports.log.info({ volume: volume.metadata.name, handle: plan.handle }, 'volume deleted');
  return undefined;
}

/** Refuses a deletion without its secret: a driver that is called without one may leave the volume
 * behind and say that it is gone. */
async function handleSecretProblem(
  ports: ProcessorPorts,
  deletion: OpenDeletion,
  problem: SecretProblem,
): Promise<Outcome> {
  await deletion.ends.notSent();
  if (problem.error !== undefined && isOutage(problem.error)) throw problem.error;
  const { name, namespace } = problem.ref;
  const message =
    problem.kind === 'missing'
      ? `secret ${namespace}/${name} of this volume's deletion is not there; create it again`
      : problem.message;
  return refuseDeletion(ports, deletion, { message, waitsFor: problem.waitsFor });
}

/** Looks once more, as late as possible, whether another PV stands for the volume: it may have been
 * created since ingest looked and enqueued the key, as while a deletion backs off.
 * @returns undefined if there is none */
async function refuseIfShared(
  ports: ProcessorPorts,
  deletion: OpenDeletion,
): Promise<Outcome | undefined> {
  const { ends, volume } = deletion;
  const other = await findSharer(ports, volume).catch(async (error: unknown) => {
    await ends.notSent();
    throw error;
  });
  if (other === undefined) return undefined;
  await ends.notSent();
  if (other === 'unknown') return NOT_COMPARED;
  const { name, resourceVersion: seen } = other.metadata;
  return refuseDeletion(ports, deletion, {
    message: explainShared(name),
    waitsFor: [{ resource: volumes.plural, name, seen }],
  });
}

const NOT_COMPARED: Outcome = {
  kind: 'later',
  reason:
    'no ingest has told lately whether another PersistentVolume has the handle; ' +
    'the volume is deleted when one does (see /readyz of ingest)',
  until: [VIEW_CONDITION],
};

/** Ends the run of a volume that can't be deleted as things are. */
export async function refuseDeletion(
  ports: Pick<ProcessorPorts, 'events'>,
  volumeRun: VolumeRun,
  { message, waitsFor }: { readonly message: string; readonly waitsFor: readonly WaitCondition[] },
): Promise<Outcome> {
  reportDeletionFailed(ports, volumeRun, message);
  return parkOrRetry(message, waitsFor);
}

async function handleFailure(
  ports: ProcessorPorts,
  deletion: OpenDeletion,
  error: CsiError,
): Promise<Outcome> {
  const { ends, gateway } = deletion;
  const { codeName, message: reason } = error;
  if (error.notForwarded) {
    const outcome = await handleNotForwarded(ports, ends.notSent, error, gateway);
    if (outcome.kind === 'parked' || isDriverDown(outcome))
      reportDeletionFailed(ports, deletion, outcome.reason);
    return outcome;
  }
  await ends.unknown(codeName);
  reportDeletionFailed(ports, deletion, reason);
  return { kind: isStillRunning(codeName) ? 'running' : 'retry', reason };
}
