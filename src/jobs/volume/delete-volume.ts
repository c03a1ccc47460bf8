import { CsiError } from '../../csi/status.ts';
import { isOutage } from '../../kube/kube-error.ts';
import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { Run } from '../../queue/run.ts';
import { MAX_SHARERS } from '../../hints/shared-handles.ts';
import type { WaitCondition } from '../../rules/rule.ts';
import { traceHeaders, traceId } from '../../runtime/trace-id.ts';
import { type DeletionPlan, planDeletion } from '../../volumes/deletion.ts';
import { explainShared, identityOf, mayBeSame } from '../../volumes/handles.ts';
import type { CsiDriver, Dependencies, Events, Kube, RedisState } from '../dependencies.ts';
import type { MarkedJob } from '../mark-job.ts';
import {
  describeFailedCall,
  notForwarded,
  parkOrRetry,
  reportDeletionFailed,
  whyDriverDown,
} from '../outcomes.ts';
import { readSecretValues, type SecretProblem, type SecretValues } from '../read-objects.ts';

interface DeleteCall {
  /** The claim's UID, or the PV's: the trace of the call. */
  readonly id: string;
  readonly run: Run;
  readonly handle: string;
  readonly isMigrated: boolean;
  readonly gateway: string;
  /** Unix ms after which it must not be sent. */
  readonly notAfterMs: number;
}

/** Sends DeleteVolume. Every DeleteVolume is sent here.
 * @returns why it failed; undefined if the volume is gone */
export async function sendDeleteVolume(
  { csi, timeoutMs }: CsiDriver,
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

const RUNNING = new Set(['Canceled', 'DeadlineExceeded', 'Aborted']);

/** Codes that prove nothing even if the driver itself sent them: the call goes on, or, of a
 * creation, a volume of another shape has the name. */
const NEVER_FINAL = new Set([...RUNNING, 'Unavailable', 'AlreadyExists']);

/** Whether the driver itself refused, so that this call is over (invariant 5). */
export function isFinal({ codeName, driverSaid }: Pick<CsiError, 'codeName' | 'driverSaid'>) {
  return driverSaid && !NEVER_FINAL.has(codeName);
}

/** Whether the driver is probably still at work after a call that ended with this code. */
export function isStillRunning(codeName: string): boolean {
  return RUNNING.has(codeName);
}

/** Plans the deletion of a PV as it was read. */
export function planDeletionOf({ cluster, driver }: Dependencies, volume: Volume): DeletionPlan {
  const { classOf, attachedTo } = cluster;
  return planDeletion(volume, { driver: driver.facts(), classOf, attachedTo });
}

/** A deletion that this run has planned. */
interface PlannedDeletion {
  readonly volume: Volume;
  readonly run: Run;
  readonly id: string;
  readonly plan: Extract<DeletionPlan, { kind: 'delete' }>;
}

/** Gets ready for the call: its secret, and a look at other PVs of the volume.
 * @returns the values of the secret, or how the run ends
 * @throws KubeError if the API server is down, RedisUnavailable */
export async function prepareDeletion(
  deps: Dependencies,
  deletion: PlannedDeletion,
): Promise<{ readonly values: SecretValues } | { readonly outcome: Outcome }> {
  const secrets = await readSecretValues(deps.cluster.kube, deletion.plan.secret.ref);
  if (secrets.kind !== 'values')
    return { outcome: handleSecretProblem(deps.cluster.events, deletion, secrets) };
  const refused = await refuseIfShared(deps, deletion);
  return refused === undefined ? { values: secrets.values } : { outcome: refused };
}

/** Has the driver delete the volume. A `retry` outcome is delayed by src/queue/outcome.ts, as for
 * creations.
 * @returns undefined if the volume is gone, so that its PV may be deleted */
export async function callDeleteVolume(
  deps: Dependencies,
  deletion: PlannedDeletion & { readonly mark: MarkedJob } & Pick<
      DeleteCall,
      'gateway' | 'notAfterMs'
    >,
  secrets: SecretValues,
): Promise<Outcome | undefined> {
  const { driver, reports } = deps;
  const { id, plan, volume } = deletion;
  const { handle, isMigrated } = plan;
  const error = await sendDeleteVolume(driver, { ...deletion, handle, isMigrated }, secrets);
  if (error !== undefined) return handleFailure(deps, deletion, error);
  reports.capacity.volumeChanged(volume.spec);
  const { name } = volume.metadata;
  reports.log.info({ volume: name, trace: traceId(id), handle }, 'volume deleted');
  return undefined;
}

/** Refuses a deletion without its secret: a driver that is called without one may leave the volume
 * behind and say that it is gone. */
function handleSecretProblem(
  events: Events,
  { volume }: PlannedDeletion,
  { kind, ref, error, message, waitsFor }: SecretProblem,
): Outcome {
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
  { volume }: PlannedDeletion,
): Promise<Outcome | undefined> {
  const other = await findSharer(cluster.kube, redis.sharersOf, volume);
  if (other === undefined) return undefined;
  if (other === 'unknown') return NOT_COMPARED;
  const { name, resourceVersion: seen } = other.metadata;
  return refuseDeletion(cluster.events, volume, {
    message: explainShared(name),
    waitsFor: [{ resource: volumes.plural, name, seen }],
  });
}

/** Looks for another PV that may stand for the same volume (invariant 6). Costs no API request
 * unless there may be one; then that PV is read, since it may be gone by now.
 * @returns `unknown` if nothing is known of the last seconds, or if all PVs that ingest named are
 *   gone and there were more than it names
 * @throws KubeError, RedisUnavailable */
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

/** It is not known whether another PV has the handle. */
export const NOT_COMPARED: Outcome = {
  kind: 'later',
  reason:
    'no ingest has told lately whether another PersistentVolume has the handle, and a list of all ' +
    'came too late; trying again (see /readyz of ingest)',
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

async function handleFailure(
  { cluster, driver }: Dependencies,
  { volume, run, mark }: PlannedDeletion & { readonly mark: MarkedJob },
  error: CsiError,
): Promise<Outcome> {
  const { codeName } = error;
  if (error.notForwarded) {
    await mark.undo(false);
    const outcome = notForwarded(error);
    const told = whyDriverDown(outcome);
    if (told !== undefined) reportDeletionFailed(cluster.events, volume, told);
    return outcome;
  }
  if (isFinal(error)) await mark.undo(false);
  const { reason, event } = await describeFailedCall(driver, run, error);
  reportDeletionFailed(cluster.events, volume, event);
  return { kind: isStillRunning(codeName) ? 'running' : 'retry', reason };
}
