import { type CsiError, isFinal, isStillRunning } from '../../csi/status.ts';
import { CREATION_TIMEOUT } from '../../kube/keys.ts';
import { isOutage, type KubeError } from '../../kube/kube-error.ts';
import type { Class, Volume } from '../../kube/objects.ts';
import { classes, volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { requirementText } from '../../topology/parse-requirement.ts';
import { readClassSettings } from '../../volumes/class-settings.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import { identityOf, isSameVolume } from '../../volumes/handles.ts';
import type { BadAnswer, PlannedRequest, VolumeAnswer } from '../../volumes/persistent-volume.ts';
import type { ClaimRun } from '../dependencies.ts';
import { type MarkedJob, markJob, MAX_READ_AGE_MS } from '../mark-job.ts';
import {
  describeFailedCall,
  notForwarded,
  recordClaimEvent,
  reportFailedForNow,
  reportProvisioningFailed,
} from '../outcomes.ts';
import type { SecretProblem, SecretValues } from '../secret-values.ts';
import { sendDeleteVolume } from '../volume/reconcile-volume.ts';
import { requestReschedule, stayInJournal } from './plan-claim.ts';

/* Ends the runs of claims whose volume or PV could not be made, in the order of the steps of
 * reconcile-claim.ts. What a failure proves depends on the error (judgeCreateFailure), and on
 * whether earlier calls may have been at work when the run marked the job (R3 to R6). */

/** A planned creation whose job is marked, so that its request may be sent. */
export interface Creation extends ClaimRun {
  readonly planned: PlannedRequest;
  readonly mark: MarkedJob;
  /** The values that CreateVolume gets. */
  readonly secrets: SecretValues;
}

/** Ends a run that could not read the secret for its call. */
export function endWithoutSecret(
  claimRun: ClaimRun,
  { error, message, waitsFor }: SecretProblem,
): Outcome {
  reportProvisioningFailed(claimRun, message);
  if (error !== undefined && isOutage(error)) return { kind: 'later', reason: message };
  if (claimRun.claim === undefined) return stayInJournal(claimRun, message, waitsFor);
  // Not parked: ingest may have no right to watch the secret.
  return { kind: 'retry', reason: message, until: waitsFor };
}

/** What an error of CreateVolume says about the volume (invariant 5). */
type CreateFailure =
  | { readonly kind: 'not-forwarded' }
  /** The driver itself refused; final unless an earlier call may still be at work. `infeasible`:
   * the same request can't succeed later. */
  | { readonly kind: 'refused'; readonly infeasible: boolean }
  /** A volume may exist or may still be created. `running`: the driver is probably at work. */
  | { readonly kind: 'unknown'; readonly running: boolean };

/** Classifies an error of CreateVolume (external-provisioner pkg/controller/controller.go
 * checkError).
 * @param options.isNotFoundUnknown  an earlier call may have created a volume from a content
 *   source: drivers look up the source first, so NotFound may be about the source */
export function judgeCreateFailure(
  error: Pick<CsiError, 'codeName' | 'driverSaid' | 'notForwarded'>,
  { isNotFoundUnknown }: { readonly isNotFoundUnknown: boolean },
): CreateFailure {
  const { codeName } = error;
  if (error.notForwarded) return { kind: 'not-forwarded' };
  return isFinal(error) && !(codeName === 'NotFound' && isNotFoundUnknown)
    ? { kind: 'refused', infeasible: codeName === 'InvalidArgument' }
    : { kind: 'unknown', running: isStillRunning(codeName) };
}

/** Ends a run whose CreateVolume has failed. */
export async function endFailedCall(creation: Creation, error: CsiError): Promise<Outcome> {
  const { mark, planned } = creation;
  const failure = judgeCreateFailure(error, {
    isNotFoundUnknown: planned.source !== undefined && mark.leftMs !== undefined,
  });
  if (failure.kind === 'not-forwarded') {
    await mark.undo(false);
    const outcome = notForwarded(error, (event) => reportFailedForNow(creation, event));
    return outcome.kind === 'running'
      ? { ...outcome, isUsual: usualTime(creation) !== undefined }
      : outcome;
  }
  const outcome =
    failure.kind === 'refused'
      ? await endRefused(creation, error, failure.infeasible)
      : await endUnknown(creation, error, failure.running);
  askForCapacity(creation);
  return outcome;
}

/** Hints ingest to refresh the capacity of the class, because a creation failed. */
function askForCapacity({ capacity, planned }: Creation): void {
  capacity.creationFailed(planned.volume.spec.storageClassName ?? '');
}

/** R5: ends a run after a refusal by the driver itself. If no earlier call may be at work, the
 * refusal proves that no volume exists, and a claim whose node has no room gets another node. */
async function endRefused(
  creation: Creation,
  { codeName, message: reason }: CsiError,
  isInfeasible: boolean,
): Promise<Outcome> {
  const { claim, mark, planned, refusedSizes } = creation;
  const isAbsent = !mark.isInDoubt;
  await mark.undo(isAbsent);
  const message = isInfeasible
    ? `Volume provisioning failed with infeasible error. Retries will be delayed. ${reason}`
    : reason;
  reportProvisioningFailed(creation, message);
  if (isAbsent && claim === undefined)
    return { kind: 'done', note: 'the driver refused, and the claim is gone' };
  if (codeName === 'ResourceExhausted') {
    refusedSizes.note(planned.volume.spec.storageClassName ?? '', planned.requestedBytes);
    const rescheduled = isAbsent ? await requestReschedule(creation) : undefined;
    if (rescheduled !== undefined) return rescheduled;
  }
  return { kind: 'retry', reason, ...(isInfeasible ? infeasibleBackoff(creation) : {}) };
}

/** The driver may still be at work: warns, unless the call may take that long. */
async function endUnknown(
  creation: Creation,
  error: CsiError,
  isRunning: boolean,
): Promise<Outcome> {
  const { run } = creation;
  const usual = isRunning ? usualTime(creation) : undefined;
  if (usual === undefined) {
    const { reason, event } = await describeFailedCall(creation, error);
    const report = isRunning ? reportFailedForNow : reportProvisioningFailed;
    report(creation, event);
    return isRunning ? { kind: 'running', reason } : { kind: 'retry', reason, mayBeAtWork: true };
  }
  // Each call sends the same text, so that one event counts the calls.
  const message =
    `The driver has been creating the volume since ${usual.since}; sutler repeats the call, ` +
    `and warns from ${usual.until} on (${CREATION_TIMEOUT} of the class)`;
  // sendCreateVolume sends the event of the first call.
  if (run.count > 1)
    recordClaimEvent(creation, { type: 'Normal', reason: 'Provisioning', message });
  return { kind: 'running', reason: `${message}: ${error.message}`, isUsual: true };
}

/** How long the driver may fill a volume from a content source, unless the class sets a time. For a
 * volume without a source each call that is still running is a failure, as in upstream. */
const FILL_MS = 3_600_000;

/** Since when the driver is at work, and until when that is usual.
 * @returns undefined if it counts as a failure */
function usualTime(
  creation: Creation,
): { readonly since: string; readonly until: string } | undefined {
  const { clock, planned, run } = creation;
  const { creationTimeoutMs } = readClassSettings(classOfClaim(creation));
  const sinceMs = run.queuedMs;
  const fallbackMs = planned.source === undefined ? 0 : FILL_MS;
  const untilMs = sinceMs + (creationTimeoutMs ?? fallbackMs);
  if (clock.nowMs() >= untilMs) return undefined;
  return { since: new Date(sinceMs).toISOString(), until: new Date(untilMs).toISOString() };
}

/* The back-off of a claim whose request the driver called infeasible (InvalidArgument). It ends
 * after its time, or when the class was deleted and created again. No edit ends it, since the same
 * request would fail again (sig-storage-lib-external-provisioner controller/controller.go
 * delayProvisioningIfRecentlyInfeasible). */

/** The fields of a `retry` outcome that start the back-off, with the class's UID as its scope. */
function infeasibleBackoff(claimRun: ClaimRun): {
  readonly minDelayMs: number;
  readonly infeasibleScope?: string;
} {
  const uid = classOfClaim(claimRun)?.metadata.uid;
  const minDelayMs = claimRun.retryMaxMs;
  return { minDelayMs, ...(uid === undefined ? {} : { infeasibleScope: uid }) };
}

/** Delays a claim until its back-off ends.
 * @returns undefined if there is none */
export async function delayIfRecentlyInfeasible(claimRun: ClaimRun): Promise<Outcome | undefined> {
  const { claim, clock, run, retryMaxMs } = claimRun;
  const uid = classOfClaim(claimRun)?.metadata.uid;
  if (uid === undefined || (claim?.spec.volumeName ?? '') !== '') return undefined;
  const { infeasible, reason = '' } = (await run.lastStatus()) ?? {};
  const leftMs = infeasible?.scope === uid ? infeasible.untilMs - clock.nowMs() : 0;
  // At most --retry-interval-max, in case somebody lowered that flag or set the clock back.
  return leftMs > 0 ? { kind: 'later', reason, delayMs: Math.min(leftMs, retryMaxMs) } : undefined;
}

function classOfClaim({ claim, classOf }: ClaimRun): Class | undefined {
  return claim && classOf(classNameOf(claim));
}

/** Ends a run after an answer that can't become a PV. If this call created the volume, deletes it
 * at once, and the next run plans again. Otherwise the next run repeats the call. */
export async function endUnusableAnswer(creation: Creation, answer: BadAnswer): Promise<Outcome> {
  const { mark, planned, run } = creation;
  const { message, handle } = answer;
  askForCapacity(creation);
  // An earlier call may have created the volume.
  if (mark.leftMs !== undefined) {
    // Keeps the text of a failed clean-up, which repeated calls do not attempt.
    const last = (await run.lastStatus())?.reason;
    return endFailed(creation, last?.startsWith(message) === true ? last : message);
  }
  if (handle === undefined) return endFailed(creation, message);
  const failure = await cleanUpVolume(creation, handle).catch(String);
  if (failure !== undefined) {
    const { name } = planned.volume.metadata;
    const begin = `${message}. ${answer.cleanupSpelling ?? 'Cleanup'} of volume ${name} failed`;
    return endFailed(creation, `${begin}, volume is orphaned: ${failure}`);
  }
  await mark.undo(true);
  const failed = endFailed(creation, message);
  return answer.isPermanent === true ? (parkOnClass(creation, message) ?? failed) : failed;
}

/** Warns, and retries the run. */
function endFailed(creation: Creation, reason: string): Outcome {
  reportProvisioningFailed(creation, reason);
  return { kind: 'retry', reason };
}

/** Parks a claim whose request can't succeed until its class is created again.
 * @returns undefined if the claim is gone */
function parkOnClass({ claim, classOf }: Creation, reason: string): Outcome | undefined {
  if (claim === undefined) return undefined;
  const name = classNameOf(claim);
  const seen = classOf(name)?.metadata.resourceVersion ?? '';
  return { kind: 'parked', reason, until: [{ resource: classes.plural, name, seen }] };
}

const MAX_CLEAN_UP_CALLS = 5;

/** Deletes the volume that this run's call created, if no PV has its name (invariant 6). Marks the
 * job again, since the creation may have taken long.
 * @returns why the volume may still exist; undefined if it is deleted
 * @throws KubeError if the PV can't be read */
async function cleanUpVolume(creation: Creation, handle: string): Promise<string | undefined> {
  const { clock, kube, job, planned, secrets } = creation;
  const mark = await markJob(creation, requirementText(planned.requirement), true);
  if ('outcome' in mark) return 'sutler may not call the driver now';
  const { name } = planned.volume.metadata;
  const readMs = clock.nowMs();
  if ((await kube.get<Volume>(volumes, { name })) !== undefined)
    return `PersistentVolume ${name} exists`;
  const notAfterMs = Math.min(mark.notAfterMs, readMs + MAX_READ_AGE_MS);
  const { isMigrated } = planned;
  const { endpoint: gateway } = creation.mark;
  const call = { id: job.uid, handle, isMigrated, gateway, notAfterMs };
  let failure = 'reading its PersistentVolume took too long';
  for (let i = 0; i < MAX_CLEAN_UP_CALLS && clock.nowMs() < notAfterMs; i += 1) {
    const error = await sendDeleteVolume(creation, call, secrets);
    if (error === undefined) return undefined;
    failure = error.message;
  }
  return failure;
}

/** Ends a run that could not write the PV of the volume that the driver has created. */
export function endUnwritten(creation: Creation, error: KubeError): Outcome {
  const reason =
    'the volume was created, but its PersistentVolume could not be written: ' + error.message;
  // The user can do something about a refusal (a quota, say), but not about a server that is down.
  if (error.code >= 400 && error.code < 500 && error.code !== 429)
    reportProvisioningFailed(creation, reason);
  return { kind: 'retry', reason };
}

/** Ends a run that finds a PV with the name of its volume. If that PV has another handle, deletes
 * nothing and asks an operator to compare the volumes.
 * @returns undefined if it is this claim's PV, with the same handle */
export async function endIfOther(
  creation: Creation,
  { handle, volume }: VolumeAnswer,
): Promise<Outcome | undefined> {
  const { facts, kube, job } = creation;
  const { name } = volume.metadata;
  const existing = await kube.get<Volume>(volumes, { name });
  if (existing === undefined || existing.metadata.deletionTimestamp !== undefined)
    return {
      kind: 'later',
      reason: `PersistentVolume ${name} is being deleted; sutler writes it again when it is gone`,
    };
  if (existing.spec.claimRef?.uid !== job.uid)
    return endFailed(
      creation,
      `volume ${name} exists already and belongs to another claim; ` +
        'delete that PersistentVolume, or this claim',
    );
  if (isSameVolume(existing, volume)) return undefined;
  const stored = identityOf(existing)?.id ?? 'another volume';
  const reason =
    `the driver answered with volume ${handle}, but PersistentVolume ${name} names ` +
    `${stored}; compare the two in the storage: if they are two volumes, delete the one that ` +
    `nobody uses; then run: sutler forget ${job.uid} ` +
    `--driver-name=${facts().name} --why=REASON`;
  reportProvisioningFailed(creation, reason);
  const { resourceVersion: seen } = existing.metadata;
  return { kind: 'parked', reason, until: [{ resource: volumes.plural, name, seen }] };
}
