import { CsiError } from '../../csi/status.ts';
import { isOutage } from '../../kube/kube-error.ts';
import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { noteReached } from '../../queue/run.ts';
import { MAX_SHARERS, VIEW_CONDITION } from '../../records/shared-handles.ts';
import type { WaitCondition } from '../../rules/rule.ts';
import { traceHeaders, traceId } from '../../runtime/trace-id.ts';
import { type DeletionPlan, planDeletion } from '../../volumes/deletion.ts';
import { explainShared, identityOf, mayBeSame } from '../../volumes/handles.ts';
import type { Attempt, RunHandle, VolumeRun } from '../attempt.ts';
import type { CsiDriver, Dependencies, Events, Kube, RedisState } from '../dependencies.ts';
import { notForwarded, parkOrRetry, reportDeletionFailed, whyDriverDown } from '../outcomes.ts';
import { readSecretValues, type SecretProblem, type SecretValues } from '../read-objects.ts';

interface DeleteCall {
  /** Key of the volume record. */
  readonly id: string;
  readonly run: RunHandle;
  readonly handle: string;
  readonly isMigrated: boolean;
  readonly gateway: string;
  /** Unix ms after which it must not be sent. */
  readonly notAfterMs: number;
  readonly ends: RecordEnds;
}

/** How the record is left after a DeleteVolume. */
interface RecordEnds {
  readonly notSent: () => Promise<unknown>;
  /** The driver may or may not have deleted the volume. */
  readonly unknown: (code: string) => Promise<unknown>;
  readonly deleted: () => Promise<unknown>;
}

/** Sends DeleteVolume, and leaves the record as the answer says. Every DeleteVolume is sent here.
 * @returns why it failed; undefined if the volume is gone */
export async function sendDeleteVolume(
  { csi, timeoutMs }: CsiDriver,
  { id, run, handle, isMigrated: migrated, gateway, notAfterMs, ends }: DeleteCall,
  secrets: SecretValues,
): Promise<CsiError | undefined> {
  const metadata = traceHeaders(id);
  const settings = { timeoutMs, notAfterMs, gateway, migrated, metadata, stopping: run.signal };
  try {
    await noteReached(run, csi.deleteVolume({ volumeId: handle, secrets }, settings));
  } catch (error) {
    if (!(error instanceof CsiError)) throw error;
    await (error.notForwarded ? ends.notSent() : ends.unknown(error.codeName));
    return error;
  }
  await ends.deleted();
  return undefined;
}

const RUNNING = new Set(['Canceled', 'DeadlineExceeded', 'Aborted']);

/** Whether the driver is probably still at work after a call that ended with this code. */
export function isStillRunning(codeName: string): boolean {
  return RUNNING.has(codeName);
}

/** Plans the deletion of a PV as it was read. */
export function planDeletionOf({ cluster, driver }: Dependencies, volume: Volume): DeletionPlan {
  const { classOf, attachedTo } = cluster;
  return planDeletion(volume, { driver: driver.facts(), classOf, attachedTo });
}

/** The ends of a record that is open for the deletion. */
export function deletionEnds({ records }: RedisState, { id, owner }: Attempt): RecordEnds {
  return {
    notSent: () => records.revert(id, owner),
    unknown: (code) => records.leaveDeleting(id, owner, code),
    deleted: () => records.closeGone(id, owner),
  };
}

/** A deletion whose record this run owns. */
interface OpenDeletion extends VolumeRun, Omit<DeleteCall, 'handle' | 'isMigrated'> {
  readonly plan: Extract<DeletionPlan, { kind: 'delete' }>;
}

/** Has the driver delete the volume. Then the record is closed if the driver did so, reverted if
 * nothing was sent, and open for deletion otherwise. A `retry` outcome is delayed by
 * src/queue/outcome.ts, as for creations.
 * @returns undefined if the volume is gone, so that its PV may be deleted
 * @throws KubeError if the API server is down */
export async function callDeleteVolume(
  deps: Dependencies,
  deletion: OpenDeletion,
): Promise<Outcome | undefined> {
  const { driver, reports } = deps;
  const { id, plan, volume } = deletion;
  const { handle, isMigrated } = plan;
  const secrets = await readSecretValues(deps.cluster.kube, plan.secret.ref);
  if (secrets.kind !== 'values') return handleSecretProblem(deps.cluster.events, deletion, secrets);
  const refused = await refuseIfShared(deps, deletion);
  if (refused !== undefined) return refused;
  const error = await sendDeleteVolume(driver, { ...deletion, handle, isMigrated }, secrets.values);
  if (error !== undefined) return handleFailure(deps, deletion, error);
  reports.capacity.volumeChanged(volume.spec);
  await driver.nodeLocal?.room.grown();
  const { name } = volume.metadata;
  reports.log.info({ volume: name, trace: traceId(id), handle }, 'volume deleted');
  return undefined;
}

/** Refuses a deletion without its secret: a driver that is called without one may leave the volume
 * behind and say that it is gone. */
async function handleSecretProblem(
  events: Events,
  { ends, volume }: OpenDeletion,
  { kind, ref, error, message, waitsFor }: SecretProblem,
): Promise<Outcome> {
  await ends.notSent();
  if (error !== undefined && isOutage(error)) throw error;
  const missing = `secret ${ref.namespace}/${ref.name} of this volume's deletion is not there`;
  const reason = kind === 'missing' ? `${missing}; create it again` : message;
  return refuseDeletion(events, volume, { message: reason, waitsFor });
}

/** Looks, as late as possible, whether another PV stands for the volume: it may be created while a
 * deletion backs off.
 * @returns undefined if there is none */
async function refuseIfShared(
  { cluster, redis }: Dependencies,
  { ends, volume }: OpenDeletion,
): Promise<Outcome | undefined> {
  const finding = findSharer(cluster.kube, redis.sharersOf, volume);
  const other = await finding.catch(async (error: unknown) => {
    await ends.notSent();
    throw error;
  });
  if (other === undefined) return undefined;
  await ends.notSent();
  if (other === 'unknown') return NOT_COMPARED;
  const { name, resourceVersion: seen } = other.metadata;
  return refuseDeletion(cluster.events, volume, {
    message: explainShared(name),
    waitsFor: [{ resource: volumes.plural, name, seen }],
  });
}

/** Looks for another PV that may stand for the same volume (invariant 7). Costs no API request
 * unless ingest has published one; then that PV is read, since it may be gone by now.
 * @returns `unknown` if no ingest has published lately, or if all PVs that it named are gone and
 *   there were more than it names
 * @throws KubeError, RecordsUnavailable */
async function findSharer(
  kube: Kube,
  sharersOf: RedisState['sharersOf'],
  volume: Volume,
): Promise<Volume | undefined | 'unknown'> {
  const identity = identityOf(volume);
  if (identity === undefined) return undefined;
  const names = await sharersOf(identity);
  if (names === undefined) return 'unknown';
  for (const name of names) {
    if (name === volume.metadata.name) continue;
    const other = await kube.get<Volume>(volumes, { name });
    if (other !== undefined && mayBeSame(other, volume)) return other;
  }
  return names.length < MAX_SHARERS ? undefined : 'unknown';
}

const NOT_COMPARED: Outcome = {
  kind: 'later',
  reason:
    'no ingest has told lately whether another PersistentVolume has the handle; ' +
    'the volume is deleted when one does (see /readyz of ingest)',
  until: [VIEW_CONDITION],
};

/** Ends the run of a volume that can't be deleted as things are. */
export function refuseDeletion(
  events: Events,
  volume: Volume,
  { message, waitsFor }: { readonly message: string; readonly waitsFor: readonly WaitCondition[] },
): Outcome {
  reportDeletionFailed(events, volume, message);
  return parkOrRetry(message, waitsFor);
}

function handleFailure(
  { cluster, driver }: Dependencies,
  { volume, gateway }: OpenDeletion,
  error: CsiError,
): Outcome {
  const { codeName, message: reason } = error;
  if (error.notForwarded) {
    const outcome = notForwarded(driver, error, gateway);
    const told = outcome.kind === 'parked' ? outcome.reason : whyDriverDown(outcome);
    if (told !== undefined) reportDeletionFailed(cluster.events, volume, told);
    return outcome;
  }
  reportDeletionFailed(cluster.events, volume, reason);
  return { kind: isStillRunning(codeName) ? 'running' : 'retry', reason };
}
