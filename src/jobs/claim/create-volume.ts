import { CsiError, isFinal, isStillRunning } from '../../csi/status.ts';
import { CREATION_TIMEOUT } from '../../kube/keys.ts';
import { isOutage } from '../../kube/kube-error.ts';
import type { Claim, Class, Volume } from '../../kube/objects.ts';
import { classes, volumes } from '../../kube/resources.ts';
import type { JobKey } from '../../queue/contract.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { Run } from '../../queue/run.ts';
import { traceHeaders } from '../../runtime/trace-id.ts';
import { requirementText } from '../../topology/parse-requirement.ts';
import { readClassSettings } from '../../volumes/class-settings.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import {
  type BadAnswer,
  readAnswer,
  type VolumeAnswer,
  type VolumeRequest,
} from '../../volumes/persistent-volume.ts';
import type { Dependencies } from '../dependencies.ts';
import { type MarkedJob, markJob, MAX_READ_AGE_MS } from '../mark-job.ts';
import {
  describeFailedCall,
  notForwarded,
  recordClaimEvent,
  reportFailedForNow,
  reportProvisioningFailed,
  whyDriverDown,
} from '../outcomes.ts';
import { readSecretValues, type SecretValues } from '../secret-values.ts';
import { sendDeleteVolume } from '../volume/delete-volume.ts';
import { requestReschedule, stayInJournal } from './plan-claim.ts';
import { writeVolume } from './write-volume.ts';

/** A creation that this run has planned. */
export interface Creation {
  readonly job: JobKey;
  readonly run: Run;
  /** Undefined when the claim is gone. */
  readonly claim: Claim | undefined;
  readonly planned: VolumeRequest;
  /** Earlier calls may have made the volume. */
  readonly isBegun: boolean;
  /** When the run began, Unix ms. */
  readonly startMs: number;
}

/** A creation whose job is marked, so that its request may be sent. */
interface MarkedCreation extends Creation {
  readonly mark: MarkedJob;
}

/** A call that takes this long gets an event; for shorter ones the API write is saved. */
const SLOW_CALL_MS = 2_000;
/** After a call that takes this long, the claim is read again before its success is told: for
 * shorter ones the API read is saved, which costs more than an event on a claim that is gone. */
const LONG_CALL_MS = 10_000;

/** Sends CreateVolume with secrets read afresh, and writes the PV. What a failure says of the
 * volume is decided by judgeCreateFailure, and by whether earlier calls may have been at work when
 * the job was marked (R3 to R6). */
export async function createVolume(deps: Dependencies, creation: Creation): Promise<Outcome> {
  const { claim, job, planned, run } = creation;
  const secrets = await readSecretValues(deps.cluster.kube, planned.secret);
  if (secrets.kind !== 'values') {
    reportProvisioningFailed(deps.cluster.events, claim, secrets.message);
    if (secrets.error !== undefined && isOutage(secrets.error))
      return { kind: 'later', reason: secrets.message };
    const { message: reason, waitsFor: until } = secrets;
    if (claim === undefined) return stayInJournal(deps, job, { why: reason, until });
    // Not parked: ingest may have no right to see the secret.
    return { kind: 'retry', reason, until };
  }
  const place = requirementText(planned.requirement);
  const mark = await markJob(deps, run, { planned: place, isBegun: creation.isBegun });
  if ('outcome' in mark) return mark.outcome;
  const { endpoint = planned.endpoint } = mark;
  const marked = { ...creation, mark, planned: { ...planned, endpoint } };
  return callCreateVolume(deps, marked, secrets.values);
}

async function callCreateVolume(
  deps: Dependencies,
  creation: MarkedCreation,
  secrets: SecretValues,
): Promise<Outcome> {
  const { capacity } = deps.reports;
  const { storageClassName: className = '' } = creation.planned.volume.spec;
  const sentMs = deps.clock.nowMs();
  let answer: VolumeAnswer | BadAnswer;
  try {
    answer = await sendCreateVolume(deps, creation, secrets);
  } catch (error) {
    if (!(error instanceof CsiError)) throw error;
    const outcome = await handleFailure(deps, creation, error);
    if (!error.notForwarded) capacity.creationFailed(className);
    return outcome;
  }
  const wasLong = deps.clock.nowMs() - sentMs >= LONG_CALL_MS;
  if (!('message' in answer)) return writeVolume(deps, { ...creation, answer, wasLong });
  const outcome = await handleUnusableAnswer(deps, creation, answer, secrets);
  capacity.creationFailed(className);
  return outcome;
}

async function sendCreateVolume(
  { cluster, driver: { csi, timeoutMs } }: Dependencies,
  { claim, job, mark: { notAfterMs }, planned }: MarkedCreation,
  secrets: SecretValues,
): Promise<VolumeAnswer | BadAnswer> {
  const { endpoint: gateway, isMigrated: migrated } = planned;
  const slow = setTimeout(() => {
    if (claim === undefined) return;
    const { namespace = '', name } = claim.metadata;
    const message = `External provisioner is provisioning volume for claim "${namespace}/${name}"`;
    recordClaimEvent(cluster.events, claim, { type: 'Normal', reason: 'Provisioning', message });
  }, SLOW_CALL_MS);
  try {
    const metadata = traceHeaders(job.uid);
    const settings = { timeoutMs, notAfterMs, gateway, migrated, metadata };
    const request = { ...planned.request, secrets };
    return readAnswer(await csi.createVolume(request, settings), planned);
  } finally {
    clearTimeout(slow);
  }
}

/* What becomes of a call that gave no volume that can be used. */

/** Handles an answer that no PV can be made of. A volume that this call created is deleted at once,
 * and the next run plans anew. Otherwise the end is unknown: the call is repeated. */
async function handleUnusableAnswer(
  deps: Dependencies,
  creation: MarkedCreation,
  answer: BadAnswer,
  secrets: SecretValues,
): Promise<Outcome> {
  const { claim, mark, planned, run } = creation;
  const { events } = deps.cluster;
  const { message, handle } = answer;
  let reason = message;
  // After a repeated call the volume may be the one that an earlier call created.
  const isFirstCall = mark.leftMs === undefined;
  if (handle !== undefined && isFirstCall) {
    const failure = await cleanUpVolume(deps, creation, handle, secrets).catch(String);
    if (failure === undefined) {
      await mark.undo(true);
      reportProvisioningFailed(events, claim, reason);
      if (claim !== undefined && answer.isPermanent === true)
        return parkOnClass(deps, claim, reason);
      return { kind: 'retry', reason };
    }
    const { name } = planned.volume.metadata;
    const begin = `${message}. ${answer.cleanupSpelling ?? 'Cleanup'} of volume ${name} failed`;
    reason = `${begin}, volume is orphaned: ${failure}`;
  }
  // The first warning also describes the clean-up, which repeated calls do not attempt.
  const last = (await run.lastStatus())?.reason;
  if (!isFirstCall && last?.startsWith(message) === true) reason = last;
  reportProvisioningFailed(events, claim, reason);
  return { kind: 'retry', reason };
}

const MAX_CLEAN_UP_CALLS = 5;

/** Deletes a volume that the driver has just created and that no PV can be made of: only after the
 * first call for the claim, and only if no PV has its name (invariant 6). The job is marked anew,
 * since the call that made it may have taken long.
 * @param secrets the values that CreateVolume got
 * @returns why the volume may still exist; undefined if it is deleted
 * @throws KubeError if the PV can't be read */
async function cleanUpVolume(
  deps: Dependencies,
  { job, run, planned }: MarkedCreation,
  handle: string,
  secrets: SecretValues,
): Promise<string | undefined> {
  const { clock, cluster, driver } = deps;
  const place = requirementText(planned.requirement);
  const mark = await markJob(deps, run, { planned: place, isBegun: true });
  if ('outcome' in mark) return 'nothing may be sent to the driver now';
  const { endpoint: gateway, isMigrated } = planned;
  const { name } = planned.volume.metadata;
  const readMs = clock.nowMs();
  if ((await cluster.kube.get<Volume>(volumes, { name })) !== undefined)
    return `PersistentVolume ${name} exists`;
  const notAfterMs = Math.min(mark.notAfterMs, readMs + MAX_READ_AGE_MS);
  const call = { id: job.uid, handle, isMigrated, gateway, notAfterMs };
  let failure = 'reading its PersistentVolume took too long';
  for (let i = 0; i < MAX_CLEAN_UP_CALLS && clock.nowMs() < notAfterMs; i += 1) {
    const error = await sendDeleteVolume(driver, call, secrets);
    if (error === undefined) return undefined;
    failure = error.message;
  }
  return failure;
}

/** Parks a claim whose request can't succeed until its class is created again. */
function parkOnClass({ cluster }: Dependencies, claim: Claim, reason: string): Outcome {
  const name = classNameOf(claim);
  const seen = cluster.classOf(name)?.metadata.resourceVersion ?? '';
  return { kind: 'parked', reason, until: [{ resource: classes.plural, name, seen }] };
}

/** What an error of CreateVolume says of the volume (invariant 5). */
type CreateFailure =
  | { readonly kind: 'not-forwarded' }
  /** The driver itself refused; final unless an earlier call may still be at work. `infeasible`:
   * the same request can't succeed later. */
  | { readonly kind: 'refused'; readonly infeasible: boolean }
  /** A volume may exist or may still be created. `running`: the driver is probably at work. */
  | { readonly kind: 'unknown'; readonly running: boolean };

/** Classifies an error of CreateVolume. Upstream: external-provisioner
 * pkg/controller/controller.go checkError.
 * @param options.isNotFoundUnknown a content source was asked for, and an earlier call may have
 *   created the volume: NotFound may then be about the source, which drivers look up first */
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

async function handleFailure(
  deps: Dependencies,
  creation: MarkedCreation,
  error: CsiError,
): Promise<Outcome> {
  const { claim, mark, planned } = creation;
  const failure = judgeCreateFailure(error, {
    // Drivers look the source up first, which may be gone although the volume exists.
    isNotFoundUnknown: planned.source !== undefined && mark.leftMs !== undefined,
  });
  switch (failure.kind) {
    case 'not-forwarded': {
      await mark.undo(false);
      const outcome = notForwarded(error);
      const told = whyDriverDown(outcome);
      if (told !== undefined) reportFailedForNow(deps.cluster.events, claim, told);
      return outcome.kind === 'running'
        ? { ...outcome, isUsual: usualTime(deps, creation) !== undefined }
        : outcome;
    }
    case 'refused':
      return handleRefusal(deps, creation, error, failure.infeasible);
    case 'unknown':
      return handleUnknownEnd(deps, creation, error, failure.running);
  }
}

/** R5: handles a refusal by the driver itself. It proves that no volume exists unless earlier calls
 * may have been at work; then a claim whose node has no room gets another node. */
async function handleRefusal(
  deps: Dependencies,
  { claim, mark, planned }: MarkedCreation,
  { codeName, message: reason }: CsiError,
  isInfeasible: boolean,
): Promise<Outcome> {
  const isAbsent = !mark.isInDoubt;
  await mark.undo(isAbsent);
  const message = isInfeasible
    ? `Volume provisioning failed with infeasible error. Retries will be delayed. ${reason}`
    : reason;
  reportProvisioningFailed(deps.cluster.events, claim, message);
  if (isAbsent && claim === undefined)
    return { kind: 'done', note: 'the driver refused, and the claim is gone' };
  if (codeName === 'ResourceExhausted') {
    const { requestedBytes, volume } = planned;
    deps.driver.refusedSizes.note(volume.spec.storageClassName ?? '', requestedBytes);
    const rescheduled = isAbsent && claim && (await requestReschedule(deps, claim));
    if (rescheduled) return rescheduled;
  }
  return {
    kind: 'retry',
    reason,
    ...(isInfeasible ? startInfeasibleBackoff(deps, claim) : {}),
  };
}

/** How long the driver may fill a volume from a content source, unless the class says. Of other
 * volumes each such call is a failure, as in upstream. */
const FILL_MS = 3_600_000;

/** Since when the driver is at work, and until when that is no failure, by the class.
 * @returns undefined if it is one */
function usualTime(
  deps: Dependencies,
  { claim, planned, run }: Creation,
): { readonly since: string; readonly until: string } | undefined {
  const { creationTimeoutMs } = readClassSettings(classOf(deps, claim));
  const sinceMs = run.queuedMs;
  const fallbackMs = planned.source === undefined ? 0 : FILL_MS;
  const untilMs = sinceMs + (creationTimeoutMs ?? fallbackMs);
  if (deps.clock.nowMs() >= untilMs) return undefined;
  return { since: new Date(sinceMs).toISOString(), until: new Date(untilMs).toISOString() };
}

/** The driver may still be at work: warns, unless it may take that long. */
async function handleUnknownEnd(
  deps: Dependencies,
  creation: Creation,
  error: CsiError,
  isRunning: boolean,
): Promise<Outcome> {
  const { claim, run } = creation;
  const { events } = deps.cluster;
  const usual = isRunning ? usualTime(deps, creation) : undefined;
  if (usual === undefined) {
    const { reason, event } = await describeFailedCall(deps.driver, run, error);
    const report = isRunning ? reportFailedForNow : reportProvisioningFailed;
    report(events, claim, event);
    return isRunning ? { kind: 'running', reason } : { kind: 'retry', reason, mayBeAtWork: true };
  }
  // The same text for each call, so that it is one event, whose count is that of the calls.
  const message =
    `The driver is at work on the volume since ${usual.since}; it is asked again and again, ` +
    `which counts as failing from ${usual.until} on (${CREATION_TIMEOUT} of the class)`;
  // The first call has an event of its own.
  if (run.count > 1)
    recordClaimEvent(events, claim, { type: 'Normal', reason: 'Provisioning', message });
  return { kind: 'running', reason: `${message}: ${error.message}`, isUsual: true };
}

/* The back-off of a claim whose request the driver called infeasible (InvalidArgument). It ends
 * after its time, or when the class was deleted and created again. No edit ends it, since the same
 * request would fail again (sig-storage-lib-external-provisioner controller/controller.go
 * delayProvisioningIfRecentlyInfeasible). */

/** The fields of a `retry` outcome that start the back-off, with the class's UID as its scope. */
function startInfeasibleBackoff(
  deps: Dependencies,
  claim: Claim | undefined,
): { readonly minDelayMs: number; readonly infeasibleScope?: string } {
  const uid = classOf(deps, claim)?.metadata.uid;
  const minDelayMs = deps.settings.retryMaxMs;
  return { minDelayMs, ...(uid === undefined ? {} : { infeasibleScope: uid }) };
}

/** Delays a claim until its back-off ends.
 * @returns undefined if there is none */
export async function delayIfRecentlyInfeasible(
  deps: Dependencies,
  claim: Claim | undefined,
  run: Pick<Run, 'lastStatus' | 'infeasibleBackoffMs'>,
): Promise<Outcome | undefined> {
  const cls = classOf(deps, claim);
  if (cls === undefined || (claim?.spec.volumeName ?? '') !== '') return undefined;
  // At most --retry-interval-max, in case that was lowered or a clock was set back.
  const delayMs = Math.min(
    await run.infeasibleBackoffMs(cls.metadata.uid),
    deps.settings.retryMaxMs,
  );
  if (delayMs === 0) return undefined;
  const reason = (await run.lastStatus())?.reason ?? 'the driver called the request infeasible';
  return { kind: 'later', reason, delayMs };
}

function classOf({ cluster }: Dependencies, claim: Claim | undefined): Class | undefined {
  return claim && cluster.classOf(classNameOf(claim));
}
