import { create, toBinary } from '@bufbuild/protobuf';
import {
  type CreateVolumeResponse,
  CreateVolumeRequestSchema,
} from '../../csi/generated/csi_pb.ts';
import { CsiError } from '../../csi/status.ts';
import type { Claim } from '../../kube/objects.ts';
import { classes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { Replay } from '../../records/open-results.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import { judgeCreateFailure } from '../../volumes/create-result.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import {
  type BadAnswer,
  type VolumeSkeleton,
  readAnswer,
} from '../../volumes/persistent-volume.ts';
import type { ClaimAttempt } from '../attempt.ts';
import { handleNotForwarded, parkOrRetry } from '../common-outcomes.ts';
import { recordClaimEvent, reportProvisioningFailed } from '../events.ts';
import type { ProcessorPorts } from '../ports.ts';
import {
  type SecretProblem,
  type SecretValues,
  readSecretValues,
  withoutSecrets,
} from '../secret-values.ts';
import { cleanUpVolume } from './clean-up.ts';
import type { CreatedVolume } from './created-volume.ts';
import { startHoldOff } from './hold-off.ts';
import { requestReschedule } from './request-reschedule.ts';
import { storeVolume } from './store-volume.ts';

/** An open record that this run owns, and the request to send for it. If the claim is gone, the
 * volume is created all the same and reclaimed by the ordinary deletion (invariant 3). */
export interface OpenCreation extends ClaimAttempt {
  readonly stored: VolumeRequest;
  /** Of a request that an earlier run sent. */
  readonly replayed?: Replay;
  /** What to do with the created volume: by default its PV is written. */
  readonly onCreated?: (ports: ProcessorPorts, created: CreatedVolume) => Promise<Outcome>;
}

/** Sends the stored request with secrets read afresh, and hands on the created volume. An answer
 * that the record keeps is used instead of a call. A failure leaves the record as src/volumes/
 * create-result.ts judges it: as before the attempt, closed, or ambiguous (invariant 6). */
export async function callCreateVolume(
  ports: ProcessorPorts,
  creation: OpenCreation,
): Promise<Outcome> {
  const { attempt, claim, run, stored, replayed, onCreated = storeVolume } = creation;
  const { skeleton } = stored;
  const keptAnswer = replayed?.answer;
  if (keptAnswer !== undefined) {
    const created = { attempt, claim, run, skeleton, answer: keptAnswer, wasSlow: false };
    return onCreated(ports, created);
  }
  const secrets = await readSecretValues(ports, stored.secret);
  if (secrets.kind !== 'values') return handleSecretProblem(ports, creation, secrets);
  const sentMs = ports.clock.nowMs();
  let response: CreateVolumeResponse;
  try {
    response = await sendCreateVolume(ports, creation, {
      request: encodeRequest(stored, secrets.values),
      migrated: skeleton.isMigrated === true,
    });
  } catch (error) {
    if (error instanceof CsiError)
      return handleFailure(ports, creation, {
        skeleton,
        error: withoutSecrets(error, secrets.values),
      });
    await ports.records.leaveAmbiguous(attempt.id, attempt.owner, 'Unknown');
    throw error;
  }
  const answer = readAnswer(response, skeleton);
  if ('message' in answer)
    return handleUnusableAnswer(ports, creation, { answer, skeleton, secrets: secrets.values });
  const wasSlow = ports.clock.nowMs() - sentMs >= SLOW_CALL_MS;
  return onCreated(ports, { attempt, claim, run, skeleton, answer, wasSlow });
}

/** Ends an attempt whose secret can't be sent. The key parks only if ingest watches secrets: without
 * that, a parked key would wait for the longest delay. */
async function handleSecretProblem(
  ports: ProcessorPorts,
  creation: OpenCreation,
  { message: reason, waitsFor }: SecretProblem,
): Promise<Outcome> {
  await ports.records.revert(creation.attempt.id, creation.attempt.owner);
  await reportProvisioningFailed(ports, creation, reason);
  return parkOrRetry(reason, ports.areSecretsWatched ? waitsFor : []);
}

/** The stored request with the field of the secrets appended. Protobuf merges fields in any order, so
 * the stored part is sent byte for byte. */
function encodeRequest(stored: VolumeRequest, secrets: SecretValues): Uint8Array {
  const message = create(CreateVolumeRequestSchema, { secrets });
  return Buffer.concat([stored.request, toBinary(CreateVolumeRequestSchema, message)]);
}

/** A call that takes this long gets an event. Shorter ones save the API server a write per claim. */
const SLOW_CALL_MS = 1_000;

async function sendCreateVolume(
  ports: ProcessorPorts,
  { claim, attempt }: OpenCreation,
  { request, migrated }: { readonly request: Uint8Array; readonly migrated: boolean },
): Promise<CreateVolumeResponse> {
  const answered = new AbortController();
  void ports.clock.sleep(SLOW_CALL_MS, answered.signal).then(() => {
    if (answered.signal.aborted || claim === undefined) return;
    const { namespace = '', name } = claim.metadata;
    const message = `External provisioner is provisioning volume for claim "${namespace}/${name}"`;
    recordClaimEvent(ports, claim, { type: 'Normal', reason: 'Provisioning', message });
  });
  try {
    const { notAfterMs, gateway } = attempt;
    const { timeoutMs } = ports;
    return await ports.csi.createVolume(request, { timeoutMs, notAfterMs, gateway, migrated });
  } finally {
    // With a reason given, abort() does not build an exception with a stack trace.
    answered.abort('answered');
  }
}

/** Stands in the record in the place of a gRPC code. */
const BAD_ANSWER = 'BadAnswer';

/** Handles an answer that no PV can be made of. What was created is deleted at once if that is safe:
 * then the record closes, and the next run plans anew. */
async function handleUnusableAnswer(
  ports: ProcessorPorts,
  creation: OpenCreation,
  unusable: { answer: BadAnswer; skeleton: VolumeSkeleton; secrets: SecretValues },
): Promise<Outcome> {
  const { attempt, claim, run, replayed } = creation;
  const { answer, skeleton, secrets } = unusable;
  const { name } = skeleton.volume.metadata;
  let reason = answer.message;
  if (answer.handle !== undefined && replayed === undefined) {
    const { handle } = answer;
    const failure = await cleanUpVolume(ports, { attempt, handle, name, secrets }).catch(String);
    if (failure === undefined) {
      const result = await ports.records.closeRefused(attempt.id, attempt.owner, BAD_ANSWER);
      await reportProvisioningFailed(ports, creation, reason);
      if (claim !== undefined && answer.isPermanent === true)
        return parkOnClass(ports, claim, reason);
      return { kind: 'retry', reason, ...(result === 'removed' ? { isAbsent: true } : {}) };
    }
    reason += `. ${answer.cleanupSpelling ?? 'Cleanup'} of volume ${name} failed, volume is orphaned: ${failure}`;
  }
  await ports.records.leaveAmbiguous(attempt.id, attempt.owner, BAD_ANSWER);
  // The warning of the first answer also tells of the clean-up; the same answer again adds nothing.
  if ((await run.lastReason())?.startsWith(answer.message) !== true)
    await reportProvisioningFailed(ports, creation, reason);
  return { kind: 'retry', reason };
}

/** Parks a claim that fails until its class is created anew. */
function parkOnClass(ports: ProcessorPorts, claim: Claim, reason: string): Outcome {
  const name = classNameOf(claim);
  const seen = ports.classOf(name)?.metadata.resourceVersion ?? '';
  return { kind: 'parked', reason, until: [{ resource: classes.plural, name, seen }] };
}

async function handleFailure(
  ports: ProcessorPorts,
  creation: OpenCreation,
  { skeleton, error }: { readonly skeleton: VolumeSkeleton; readonly error: CsiError },
): Promise<Outcome> {
  const { attempt, replayed } = creation;
  const failure = judgeCreateFailure(error, {
    isNotFoundAmbiguous: skeleton.source !== undefined && replayed?.ambiguous === true,
  });
  switch (failure.kind) {
    case 'not-forwarded':
      return handleNotForwarded(ports, attempt, error);
    case 'refused':
      return handleRefusal(ports, creation, { error, isInfeasible: failure.infeasible });
    case 'ambiguous': {
      const reason = error.message;
      await ports.records.leaveAmbiguous(attempt.id, attempt.owner, error.codeName);
      await reportProvisioningFailed(ports, creation, reason);
      return { kind: failure.running ? 'running' : 'retry', reason };
    }
  }
}

/** Handles a refusal by the driver itself. It proves that no volume exists if the record could be
 * removed; then a claim whose node has no room gets another node. */
async function handleRefusal(
  ports: ProcessorPorts,
  creation: OpenCreation,
  { error, isInfeasible }: { readonly error: CsiError; readonly isInfeasible: boolean },
): Promise<Outcome> {
  const { attempt, claim } = creation;
  const { codeName, message: reason } = error;
  const isAbsent =
    (await ports.records.closeRefused(attempt.id, attempt.owner, codeName)) === 'removed';
  const message = isInfeasible
    ? `Volume provisioning failed with infeasible error. Retries will be delayed. ${reason}`
    : reason;
  await reportProvisioningFailed(ports, creation, message, reason);
  if (isAbsent && claim === undefined)
    return { kind: 'done', note: 'the driver refused, and the claim is gone' };
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
