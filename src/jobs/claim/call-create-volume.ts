import { create, toBinary } from '@bufbuild/protobuf';
import { CreateVolumeRequestSchema as RequestSchema } from '../../csi/generated/csi_pb.ts';
import { CsiError } from '../../csi/status.ts';
import { nodeOf } from '../../gateway-client/node-address.ts';
import type { Claim } from '../../kube/objects.ts';
import { classes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { Replay } from '../../records/open-results.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import { judgeCreateFailure } from '../../volumes/create-result.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import { type BadAnswer, readAnswer, type VolumeAnswer } from '../../volumes/persistent-volume.ts';
import type { ClaimAttempt } from '../attempt.ts';
import { handleNotForwarded, isDriverDown, parkOrRetry } from '../common-outcomes.ts';
import { noteReached } from '../../queue/run.ts';
import { recordClaimEvent, reportProvisioningFailed } from '../report-events.ts';
import type { ProcessorPorts } from '../ports.ts';
import { readSecretValues, type SecretValues } from '../secret-values.ts';
import { cleanUpVolume } from './clean-up.ts';
import type { CreatedVolume, OpenCreation } from './creation.ts';
import { startHoldOff } from './hold-off.ts';
import { requestReschedule } from './request-reschedule.ts';
import { storeVolume } from './store-volume.ts';

/** What to do with a created volume. */
type OnCreated = (ports: ProcessorPorts, created: CreatedVolume) => Promise<Outcome>;

/** Sends the request that this run has planned and opened the record with.
 * @param opened as opening the record answered: the active gateway, if a leader has named one */
export function sendPlanned(
  ports: ProcessorPorts,
  claimAttempt: ClaimAttempt,
  planned: VolumeRequest,
  { endpoint = planned.endpoint }: { readonly endpoint?: string },
): Promise<Outcome> {
  ports.capacity.creationBegins(planned);
  return callCreateVolume(ports, { ...claimAttempt, stored: { ...planned, endpoint } });
}

/** Sends the stored request of an earlier run again. If the record keeps the driver's answer to it,
 * that is used instead of a call. If the claim is gone, the volume is created all the same, and the
 * ordinary deletion reclaims it (invariant 3).
 * @param onCreated by default writes the PV */
export function sendStored(
  ports: ProcessorPorts,
  claimAttempt: ClaimAttempt,
  replay: Replay,
  onCreated: OnCreated = storeVolume,
): Promise<Outcome> {
  const { stored, answer } = replay;
  const creation = { ...claimAttempt, stored, replay };
  return answer === undefined
    ? callCreateVolume(ports, creation, onCreated)
    : onCreated(ports, { ...creation, answer, wasLong: false });
}

/** A call that takes this long gets an event; for shorter ones the API write is saved. */
const SLOW_CALL_MS = 2_000;
/** After a call that takes this long, the claim is read again before its success is told: for
 * shorter ones the API read is saved, which costs more than an event on a claim that is gone. */
const LONG_CALL_MS = 10_000;

/** Sends CreateVolume with secrets read afresh. After a failure the record is as
 * src/volumes/create-result.ts judges it: reverted, closed, or ambiguous. */
async function callCreateVolume(
  ports: ProcessorPorts,
  creation: OpenCreation,
  onCreated: OnCreated = storeVolume,
): Promise<Outcome> {
  const { attempt, stored } = creation;
  const secrets = await readSecretValues(ports, stored.secret);
  if (secrets.kind !== 'values') {
    await ports.records.revert(attempt.id, attempt.owner);
    reportProvisioningFailed(ports, creation, secrets.message);
    // If ingest did not watch secrets, a parked claim would wait for the longest delay.
    return parkOrRetry(secrets.message, ports.areSecretsWatched ? secrets.waitsFor : []);
  }
  const { values } = secrets;
  const sentMs = ports.clock.nowMs();
  let answer: VolumeAnswer | BadAnswer;
  try {
    answer = await sendCreateVolume(ports, creation, values);
  } catch (error) {
    if (error instanceof CsiError) {
      const outcome = await handleFailure(ports, creation, error);
      if (!error.notForwarded) ports.capacity.creationFailed(stored);
      return outcome;
    }
    await ports.records.leaveAmbiguous(attempt.id, attempt.owner, 'Unknown');
    throw error;
  }
  const wasLong = ports.clock.nowMs() - sentMs >= LONG_CALL_MS;
  if (!('message' in answer)) return onCreated(ports, { ...creation, answer, wasLong });
  const outcome = await handleUnusableAnswer(ports, creation, answer, values);
  ports.capacity.creationFailed(stored);
  return outcome;
}

async function sendCreateVolume(
  ports: ProcessorPorts,
  { claim, attempt: { notAfterMs }, run, stored }: OpenCreation,
  secrets: SecretValues,
): Promise<VolumeAnswer | BadAnswer> {
  const { timeoutMs } = ports;
  const { endpoint: gateway, pvTemplate } = stored;
  const slow = setTimeout(() => {
    if (claim === undefined) return;
    const { namespace = '', name } = claim.metadata;
    const message = `External provisioner is provisioning volume for claim "${namespace}/${name}"`;
    recordClaimEvent(ports, claim, { type: 'Normal', reason: 'Provisioning', message });
  }, SLOW_CALL_MS);
  try {
    const migrated = pvTemplate.isMigrated === true;
    const settings = { timeoutMs, notAfterMs, gateway, migrated, stopping: run.signal };
    const request = withSecrets(stored.request, secrets);
    const answer = await noteReached(run, ports.csi.createVolume(request, settings));
    return readAnswer(answer, pvTemplate);
  } finally {
    clearTimeout(slow);
  }
}

/** Protobuf merges fields in any order, so the stored part is sent byte for byte. */
function withSecrets(request: Uint8Array, secrets: SecretValues): Uint8Array {
  if (Object.keys(secrets).length === 0) return request;
  return Buffer.concat([request, toBinary(RequestSchema, create(RequestSchema, { secrets }))]);
}

/** Takes the place of a gRPC code in the record. */
const BAD_ANSWER = 'BadAnswer';

/** Handles an answer that no PV can be made of. A volume that this call created is deleted at once;
 * then the record closes, and the next run plans anew. Otherwise the record stays open. */
async function handleUnusableAnswer(
  ports: ProcessorPorts,
  creation: OpenCreation,
  answer: BadAnswer,
  secrets: SecretValues,
): Promise<Outcome> {
  const { attempt, claim, run, stored, replay } = creation;
  const { message, handle } = answer;
  let reason = message;
  // After a repeated call the volume may be the one that an earlier call created.
  if (handle !== undefined && replay === undefined) {
    const failure = await cleanUpVolume(ports, creation, handle, secrets).catch(String);
    if (failure === undefined) {
      const result = await ports.records.closeRefused(attempt.id, attempt.owner, BAD_ANSWER);
      reportProvisioningFailed(ports, creation, reason);
      if (claim !== undefined && answer.isPermanent === true)
        return parkOnClass(ports, claim, reason);
      return { kind: 'retry', reason, ...(result === 'removed' ? { isAbsent: true } : {}) };
    }
    const { name } = stored.pvTemplate.volume.metadata;
    const begin = `${message}. ${answer.cleanupSpelling ?? 'Cleanup'} of volume ${name} failed`;
    reason = `${begin}, volume is orphaned: ${failure}`;
  }
  await ports.records.leaveAmbiguous(attempt.id, attempt.owner, BAD_ANSWER);
  // The first warning also describes the clean-up, which repeated calls do not attempt.
  const last = await run.lastReason();
  if (replay !== undefined && last?.startsWith(message) === true) reason = last;
  reportProvisioningFailed(ports, creation, reason);
  return { kind: 'retry', reason };
}

/** Parks a claim whose request can't succeed until its class is created again. */
function parkOnClass(ports: ProcessorPorts, claim: Claim, reason: string): Outcome {
  const name = classNameOf(claim);
  const seen = ports.classOf(name)?.metadata.resourceVersion ?? '';
  return { kind: 'parked', reason, until: [{ resource: classes.plural, name, seen }] };
}

async function handleFailure(
  ports: ProcessorPorts,
  creation: OpenCreation,
  error: CsiError,
): Promise<Outcome> {
  const { attempt, stored, replay } = creation;
  const failure = judgeCreateFailure(error, {
    isNotFoundAmbiguous: stored.pvTemplate.source !== undefined && replay?.ambiguous === true,
  });
  switch (failure.kind) {
    case 'not-forwarded': {
      const revert = () => ports.records.revert(attempt.id, attempt.owner);
      const outcome = await handleNotForwarded(ports, revert, error, stored.endpoint);
      // A record that is open for a node that may never come back stays so; the user is told.
      if ((outcome.kind === 'parked' && replay !== undefined) || isDriverDown(outcome))
        reportProvisioningFailed(ports, creation, outcome.reason);
      return outcome;
    }
    case 'refused':
      return handleRefusal(ports, creation, error, failure.infeasible);
    case 'ambiguous': {
      const reason = error.message;
      await ports.records.leaveAmbiguous(attempt.id, attempt.owner, error.codeName);
      reportProvisioningFailed(ports, creation, reason);
      return { kind: failure.running ? 'running' : 'retry', reason };
    }
  }
}

/** Handles a refusal by the driver itself. It proves that no volume exists if the record could be
 * removed; then a claim whose node has no room gets another node. */
async function handleRefusal(
  ports: ProcessorPorts,
  creation: OpenCreation,
  { codeName, message: reason }: CsiError,
  isInfeasible: boolean,
): Promise<Outcome> {
  const { attempt, claim, stored } = creation;
  const isAbsent =
    (await ports.records.closeRefused(attempt.id, attempt.owner, codeName)) === 'removed';
  const message = isInfeasible
    ? `Volume provisioning failed with infeasible error. Retries will be delayed. ${reason}`
    : reason;
  reportProvisioningFailed(ports, creation, message);
  if (isAbsent && claim === undefined)
    return { kind: 'done', note: 'the driver refused, and the claim is gone' };
  if (codeName === 'ResourceExhausted') noteFullNode(ports, stored);
  if (isAbsent && claim !== undefined && codeName === 'ResourceExhausted') {
    const rescheduled = await requestReschedule(ports, claim);
    if (rescheduled !== undefined) return rescheduled;
  }
  return {
    kind: 'retry',
    reason,
    ...(isInfeasible ? startHoldOff(ports, claim) : {}),
    ...(isAbsent ? { isAbsent } : {}),
  };
}

/** Remembers that the node has no room for a volume of this class and size, so that another one is
 * chosen. */
function noteFullNode(
  { nodeLocal }: ProcessorPorts,
  { endpoint, pvTemplate }: VolumeRequest,
): void {
  const node = nodeOf(endpoint);
  const { storageClassName: className = '' } = pvTemplate.volume.spec;
  if (node !== undefined)
    nodeLocal?.readings.refused({ node, className }, BigInt(pvTemplate.requestedBytes));
}
