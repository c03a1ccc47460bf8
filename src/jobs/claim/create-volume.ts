import { create, toBinary } from '@bufbuild/protobuf';
import { CreateVolumeRequestSchema as RequestSchema } from '../../csi/generated/csi_pb.ts';
import { CsiError } from '../../csi/status.ts';
import { nodeOf } from '../../gateway-client/gateway-address.ts';
import { isOutage } from '../../kube/kube-error.ts';
import type { Claim, Class, Volume } from '../../kube/objects.ts';
import { classes, volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { noteReached, type Run } from '../../queue/run.ts';
import type { Replay } from '../../records/open-results.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import { traceHeaders } from '../../runtime/trace-id.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import { type BadAnswer, readAnswer, type VolumeAnswer } from '../../volumes/persistent-volume.ts';
import { type ClaimAttempt, MAX_READ_AGE_MS } from '../attempt.ts';
import type { CsiDriver, Dependencies } from '../dependencies.ts';
import {
  notForwarded,
  parkOrRetry,
  recordClaimEvent,
  reportProvisioningFailed,
  whyDriverDown,
} from '../outcomes.ts';
import { readSecretValues, type SecretValues } from '../read-objects.ts';
import { sendDeleteVolume } from '../volume/delete-volume.ts';
import {
  handleUnknownEnd,
  judgeCreateFailure,
  type SentCreation,
  usualTime,
} from './create-failure.ts';
import { requestReschedule } from './decide-intent.ts';
import { type CreatedVolume, type OpenCreation, storeVolume } from './store-volume.ts';

type OnCreated = (deps: Dependencies, created: CreatedVolume) => Promise<Outcome>;

/** Sends the request that this run has planned and opened the record with.
 * @param opened as opening the record answered: the active gateway, if a leader has named one */
export function sendPlanned(
  deps: Dependencies,
  claimAttempt: ClaimAttempt,
  planned: VolumeRequest,
  { endpoint = planned.endpoint }: { readonly endpoint?: string },
): Promise<Outcome> {
  deps.reports.capacity.creationBegins(planned);
  return callCreateVolume(deps, { ...claimAttempt, stored: { ...planned, endpoint } });
}

/** Sends the stored request of an earlier run again. If the record keeps the driver's answer to it,
 * that is used instead of a call. If the claim is gone, the volume is created all the same, and the
 * ordinary deletion reclaims it (invariant 3).
 * @param onCreated by default writes the PV */
export function sendStored(
  deps: Dependencies,
  claimAttempt: ClaimAttempt,
  replay: Replay,
  onCreated: OnCreated = storeVolume,
): Promise<Outcome> {
  const { stored, answer } = replay;
  const creation = { ...claimAttempt, stored, replay };
  return answer === undefined
    ? callCreateVolume(deps, creation, onCreated)
    : onCreated(deps, { ...creation, answer, wasLong: false });
}

/** A call that takes this long gets an event; for shorter ones the API write is saved. */
const SLOW_CALL_MS = 2_000;
/** After a call that takes this long, the claim is read again before its success is told: for
 * shorter ones the API read is saved, which costs more than an event on a claim that is gone. */
const LONG_CALL_MS = 10_000;

/** Sends CreateVolume with secrets read afresh. After a failure the record is as judgeCreateFailure
 * says: reverted, closed, or ambiguous. */
async function callCreateVolume(
  deps: Dependencies,
  creation: OpenCreation,
  onCreated: OnCreated = storeVolume,
): Promise<Outcome> {
  const { attempt, claim, stored } = creation;
  const { records } = deps.redis;
  const { capacity } = deps.reports;
  const secrets = await readSecretValues(deps.cluster.kube, stored.secret);
  if (secrets.kind !== 'values') {
    await records.revert(attempt.id, attempt.owner);
    reportProvisioningFailed(deps.cluster.events, claim, secrets.message);
    if (secrets.error !== undefined && isOutage(secrets.error))
      return { kind: 'later', reason: secrets.message };
    // If ingest did not watch secrets, a parked claim would wait for the longest delay.
    return parkOrRetry(secrets.message, deps.settings.areSecretsWatched ? secrets.waitsFor : []);
  }
  const { values } = secrets;
  const sentMs = deps.clock.nowMs();
  let answer: VolumeAnswer | BadAnswer;
  try {
    answer = await sendCreateVolume(deps, creation, values);
  } catch (error) {
    if (error instanceof CsiError) {
      const outcome = await handleFailure(deps, { ...creation, sentMs }, error);
      if (!error.notForwarded) capacity.creationFailed(stored);
      return outcome;
    }
    await records.leaveAmbiguous(attempt.id, attempt.owner, 'Unknown');
    throw error;
  }
  const wasLong = deps.clock.nowMs() - sentMs >= LONG_CALL_MS;
  if (!('message' in answer)) return onCreated(deps, { ...creation, answer, wasLong });
  const outcome = await handleUnusableAnswer(deps, creation, answer, values);
  capacity.creationFailed(stored);
  return outcome;
}

async function sendCreateVolume(
  { cluster, driver: { csi, timeoutMs } }: Dependencies,
  { claim, attempt: { id, notAfterMs }, run, stored }: OpenCreation,
  secrets: SecretValues,
): Promise<VolumeAnswer | BadAnswer> {
  const { endpoint: gateway, pvTemplate } = stored;
  const slow = setTimeout(() => {
    if (claim === undefined) return;
    const { namespace = '', name } = claim.metadata;
    const message = `External provisioner is provisioning volume for claim "${namespace}/${name}"`;
    recordClaimEvent(cluster.events, claim, { type: 'Normal', reason: 'Provisioning', message });
  }, SLOW_CALL_MS);
  try {
    const migrated = pvTemplate.isMigrated === true;
    const metadata = traceHeaders(id);
    const settings = { timeoutMs, notAfterMs, gateway, migrated, metadata, stopping: run.signal };
    const request = withSecrets(stored.request, secrets);
    return readAnswer(await noteReached(run, csi.createVolume(request, settings)), pvTemplate);
  } finally {
    clearTimeout(slow);
  }
}

/** Protobuf merges fields in any order, so the stored part is sent byte for byte. */
function withSecrets(request: Uint8Array, secrets: SecretValues): Uint8Array {
  if (Object.keys(secrets).length === 0) return request;
  return Buffer.concat([request, toBinary(RequestSchema, create(RequestSchema, { secrets }))]);
}

/* What becomes of a call that gave no volume that can be used. */

/** Takes the place of a gRPC code in the record. */
const BAD_ANSWER = 'BadAnswer';

/** Handles an answer that no PV can be made of. A volume that this call created is deleted at once;
 * then the record closes, and the next run plans anew. Otherwise the record stays open. */
async function handleUnusableAnswer(
  deps: Dependencies,
  creation: OpenCreation,
  answer: BadAnswer,
  secrets: SecretValues,
): Promise<Outcome> {
  const { attempt, claim, run, stored, replay } = creation;
  const { events } = deps.cluster;
  const { records } = deps.redis;
  const { message, handle } = answer;
  let reason = message;
  // After a repeated call the volume may be the one that an earlier call created.
  if (handle !== undefined && replay === undefined) {
    const failure = await cleanUpVolume(deps, creation, handle, secrets).catch(String);
    if (failure === undefined) {
      const result = await records.closeRefused(attempt.id, attempt.owner, BAD_ANSWER);
      reportProvisioningFailed(events, claim, reason);
      if (claim !== undefined && answer.isPermanent === true)
        return parkOnClass(deps, claim, reason);
      return { kind: 'retry', reason, ...(result === 'removed' ? { isAbsent: true } : {}) };
    }
    const { name } = stored.pvTemplate.volume.metadata;
    const begin = `${message}. ${answer.cleanupSpelling ?? 'Cleanup'} of volume ${name} failed`;
    reason = `${begin}, volume is orphaned: ${failure}`;
  }
  await records.leaveAmbiguous(attempt.id, attempt.owner, BAD_ANSWER);
  // The first warning also describes the clean-up, which repeated calls do not attempt.
  const last = await run.lastReason();
  if (replay !== undefined && last?.startsWith(message) === true) reason = last;
  reportProvisioningFailed(events, claim, reason);
  return { kind: 'retry', reason };
}

const MAX_CLEAN_UP_CALLS = 5;
const leaveRecord = () => Promise.resolve();

/** Deletes a volume that the driver has just created and that no PV can be made of: only after the
 * first answer of its record, and only if no PV has its name (invariant 7).
 * @param secrets the values that CreateVolume got
 * @returns why the volume may still exist; undefined if it is deleted
 * @throws KubeError if the PV can't be read */
async function cleanUpVolume(
  { clock, cluster, driver }: Dependencies,
  { attempt, run, stored }: OpenCreation,
  handle: string,
  secrets: SecretValues,
): Promise<string | undefined> {
  const { endpoint: gateway, pvTemplate } = stored;
  const { name } = pvTemplate.volume.metadata;
  const readMs = clock.nowMs();
  if ((await cluster.kube.get<Volume>(volumes, { name })) !== undefined)
    return `PersistentVolume ${name} exists`;
  const notAfterMs = Math.min(attempt.notAfterMs, readMs + MAX_READ_AGE_MS);
  const isMigrated = pvTemplate.isMigrated === true;
  const call = { id: attempt.id, handle, isMigrated, gateway, notAfterMs, run };
  const ends = { notSent: leaveRecord, unknown: leaveRecord, deleted: leaveRecord };
  let failure = 'reading its PersistentVolume took too long';
  for (let i = 0; i < MAX_CLEAN_UP_CALLS && clock.nowMs() < notAfterMs; i += 1) {
    const error = await sendDeleteVolume(driver, { ...call, ends }, secrets);
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

async function handleFailure(
  deps: Dependencies,
  creation: SentCreation,
  error: CsiError,
): Promise<Outcome> {
  const { attempt, claim, stored, replay } = creation;
  const { events } = deps.cluster;
  const { records } = deps.redis;
  const failure = judgeCreateFailure(error, {
    isNotFoundAmbiguous: stored.pvTemplate.source !== undefined && replay?.ambiguous === true,
  });
  switch (failure.kind) {
    case 'not-forwarded': {
      await records.revert(attempt.id, attempt.owner);
      const outcome = notForwarded(deps.driver, error, stored.endpoint);
      // A record that is open for a node that may never come back stays so; the user is told.
      const isLeft = outcome.kind === 'parked' && replay !== undefined;
      const told = isLeft ? outcome.reason : whyDriverDown(outcome);
      if (told !== undefined) reportProvisioningFailed(events, claim, told);
      return outcome.kind === 'running'
        ? { ...outcome, isUsual: usualTime(deps, creation) !== undefined }
        : outcome;
    }
    case 'refused':
      return handleRefusal(deps, creation, error, failure.infeasible);
    case 'ambiguous':
      await records.leaveAmbiguous(attempt.id, attempt.owner, error.codeName);
      return handleUnknownEnd(deps, creation, error.message, failure.running);
  }
}

/** Handles a refusal by the driver itself. It proves that no volume exists if the record could be
 * removed; then a claim whose node has no room gets another node. */
async function handleRefusal(
  deps: Dependencies,
  { attempt, claim, stored }: OpenCreation,
  { codeName, message: reason }: CsiError,
  isInfeasible: boolean,
): Promise<Outcome> {
  const { records } = deps.redis;
  const isAbsent = (await records.closeRefused(attempt.id, attempt.owner, codeName)) === 'removed';
  const message = isInfeasible
    ? `Volume provisioning failed with infeasible error. Retries will be delayed. ${reason}`
    : reason;
  reportProvisioningFailed(deps.cluster.events, claim, message);
  if (isAbsent && claim === undefined)
    return { kind: 'done', note: 'the driver refused, and the claim is gone' };
  if (codeName === 'ResourceExhausted') noteFullNode(deps.driver, stored);
  if (isAbsent && claim !== undefined && codeName === 'ResourceExhausted') {
    const rescheduled = await requestReschedule(deps, claim, isAbsent);
    if (rescheduled !== undefined) return rescheduled;
  }
  return {
    kind: 'retry',
    reason,
    ...(isInfeasible ? startInfeasibleBackoff(deps, claim) : {}),
    ...(isAbsent ? { isAbsent } : {}),
  };
}

/** Remembers that the node has no room for a volume of this class and size, so that another one is
 * chosen. */
function noteFullNode({ nodeLocal }: CsiDriver, { endpoint, pvTemplate }: VolumeRequest): void {
  const node = nodeOf(endpoint);
  const { storageClassName: className = '' } = pvTemplate.volume.spec;
  if (node !== undefined)
    nodeLocal?.readings.refused({ node, className }, BigInt(pvTemplate.requestedBytes));
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
  run: Pick<Run, 'lastReason' | 'infeasibleBackoffMs'>,
): Promise<Outcome | undefined> {
  const cls = classOf(deps, claim);
  if (cls === undefined || (claim?.spec.volumeName ?? '') !== '') return undefined;
  // At most --retry-interval-max, in case that was lowered or a clock was set back.
  const delayMs = Math.min(
    await run.infeasibleBackoffMs(cls.metadata.uid),
    deps.settings.retryMaxMs,
  );
  if (delayMs === 0) return undefined;
  const reason = (await run.lastReason()) ?? 'the driver called the request infeasible';
  return { kind: 'later', reason, delayMs };
}

function classOf({ cluster }: Dependencies, claim: Claim | undefined): Class | undefined {
  return claim && cluster.classOf(classNameOf(claim));
}
