import { create, toBinary } from '@bufbuild/protobuf';
import { CreateVolumeRequestSchema } from '../../csi/generated/csi_pb.ts';
import type { CreateVolumeResponse } from '../../csi/generated/csi_pb.ts';
import { CsiError } from '../../csi/status.ts';
import type { Claim } from '../../kube/objects.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { Replay } from '../../records/open-results.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import { classes } from '../../kube/resources.ts';
import { judgeCreateFailure } from '../../volumes/create-result.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import { readAnswer } from '../../volumes/persistent-volume.ts';
import type { BadAnswer, VolumeSkeleton } from '../../volumes/persistent-volume.ts';
import { RefusedError } from '../../volumes/provisioning-options.ts';
import type { Attempt } from '../attempt.ts';
import { claimEvent, provisioningFailed } from '../object-events.ts';
import type { ClaimRun } from '../object-events.ts';
import { cleanUp } from './clean-up.ts';
import { requestReschedule } from './request-reschedule.ts';
import { infeasibleDelay } from './infeasible-pause.ts';
import type { ProcessorPorts } from '../ports.ts';
import { notReached } from '../not-reached.ts';
import { readSecretValues, secretChange, waitForSecret, withoutSecrets } from '../secret-values.ts';
import type { MadeVolume } from './store-volume.ts';

/** A record that this run owns, and what is to be made of it. Where the claim is gone its volume is
 * finished all the same, and reclaimed by the ordinary way of deletion. */
export interface OpenCreation extends ClaimRun {
  readonly attempt: Attempt;
  readonly stored: VolumeRequest;
  readonly replayed?: Replay;
  /** What becomes of the driver's answer; storeVolume writes the PV. */
  readonly keep: (ports: ProcessorPorts, made: MadeVolume) => Promise<Outcome>;
}

/** Sends the stored request with secrets read afresh and hands on the answer; every way out leaves
 * the record as design §3 says. */
export async function callCreateVolume(
  ports: ProcessorPorts,
  creation: OpenCreation,
): Promise<Outcome> {
  const { attempt, claim, run, stored, replayed } = creation;
  const { skeleton } = stored;
  if (replayed?.answer !== undefined) {
    return creation.keep(ports, {
      attempt,
      claim,
      run,
      skeleton,
      answer: replayed.answer,
      wasSlow: false,
    });
  }
  let request: FilledRequest;
  try {
    request = await withSecrets(ports, stored);
  } catch (error) {
    await ports.records.revert(attempt.id, attempt.owner);
    const message = error instanceof Error ? error.message : String(error);
    await provisioningFailed(ports, creation, message);
    return error instanceof RefusedError
      ? waitForSecret(ports, error)
      : { kind: 'retry', reason: message, error };
  }
  let response: CreateVolumeResponse;
  const sentMs = ports.clock.nowMs();
  try {
    response = await sendCreateVolume(ports, creation, {
      request: request.bytes,
      migrated: skeleton.isMigrated === true,
    });
  } catch (error) {
    if (error instanceof CsiError)
      return applyCreateFailure(ports, creation, {
        skeleton,
        error: withoutSecrets(error, Object.values(request.secrets)),
      });
    await ports.records.leaveAmbiguous(attempt.id, attempt.owner, 'Unknown');
    throw error;
  }
  const answer = readAnswer(response, skeleton);
  if ('message' in answer)
    return handleUnusableAnswer(ports, creation, { answer, skeleton, secrets: request.secrets });
  const wasSlow = ports.clock.nowMs() - sentMs >= SLOW_CALL_MS;
  return creation.keep(ports, { attempt, claim, run, skeleton, answer, wasSlow });
}

/** An answer that no PV can be made of. What was made is deleted at once where that is safe: then
 * the record closes, and the next run begins anew. */
async function handleUnusableAnswer(
  ports: ProcessorPorts,
  { attempt, claim, run, replayed }: OpenCreation,
  found: { answer: BadAnswer; skeleton: VolumeSkeleton; secrets: Readonly<Record<string, string>> },
): Promise<Outcome> {
  const { answer, skeleton, secrets } = found;
  const { name } = skeleton.volume.metadata;
  let reason = answer.message;
  if (answer.handle !== undefined && replayed === undefined) {
    const left = await cleanUp(ports, { attempt, handle: answer.handle, name, secrets }).catch(
      (error: unknown) => String(error),
    );
    if (left === undefined) {
      const result = await ports.records.closeRefused(attempt.id, attempt.owner, BAD_ANSWER);
      await provisioningFailed(ports, { claim, run }, reason);
      if (claim !== undefined && answer.isHopeless === true)
        return parkOnClass(ports, claim, reason);
      return { kind: 'retry', reason, ...(result === 'removed' ? { isAbsent: true } : {}) };
    }
    reason += `. ${answer.cleanupWord ?? 'Cleanup'} of volume ${name} failed, volume is orphaned: ${left}`;
  }
  await ports.records.leaveAmbiguous(attempt.id, attempt.owner, BAD_ANSWER);
  // The first answer's warning tells of the clean-up too; the same answer again adds nothing to it.
  if ((await run.lastReason())?.startsWith(answer.message) !== true)
    await provisioningFailed(ports, { claim, run }, reason);
  return { kind: 'retry', reason };
}

/** Asking again would end the same until somebody makes another class of this name. */
function parkOnClass(ports: ProcessorPorts, claim: Claim, reason: string): Outcome {
  const name = classNameOf(claim);
  const seen = ports.classOf(name)?.metadata.resourceVersion ?? '';
  return { kind: 'parked', reason, until: [{ resource: classes.plural, name, seen }] };
}

/** Stands in the record where a gRPC code stands otherwise. */
const BAD_ANSWER = 'BadAnswer';

/** A request as it goes out, and the secret values that must not come back in anybody's words. */
interface FilledRequest {
  readonly bytes: Uint8Array;
  readonly secrets: Readonly<Record<string, string>>;
}

/** The stored bytes with the secrets' field appended: protobuf merges what follows, so the stored
 * part goes out byte for byte. */
async function withSecrets(ports: ProcessorPorts, stored: VolumeRequest): Promise<FilledRequest> {
  const { request, secret: ref } = stored;
  if (ref === undefined) return { bytes: request, secrets: {} };
  const where = `error getting secret ${ref.name} in namespace ${ref.namespace}`;
  let secrets: Record<string, string> | undefined;
  try {
    secrets = await readSecretValues(ports, ref);
  } catch (cause) {
    if (cause instanceof RefusedError) throw cause;
    throw new Error(`${where}: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    });
  }
  if (secrets === undefined)
    throw new RefusedError(`${where}: secrets "${ref.name}" not found`, {
      waitsFor: [secretChange(ref, '')],
    });
  const bytes = Buffer.concat([
    request,
    toBinary(CreateVolumeRequestSchema, create(CreateVolumeRequestSchema, { secrets })),
  ]);
  return { bytes, secrets };
}

/** A call shorter than this gets no event of its own: one API write less per claim. */
const SLOW_CALL_MS = 1_000;

async function sendCreateVolume(
  ports: ProcessorPorts,
  { claim, attempt }: OpenCreation,
  { request, migrated }: { readonly request: Uint8Array; readonly migrated: boolean },
): Promise<CreateVolumeResponse> {
  const answered = new AbortController();
  void ports.clock.sleep(SLOW_CALL_MS, answered.signal).then(() => {
    if (answered.signal.aborted || claim === undefined) return;
    const message = `External provisioner is provisioning volume for claim "${claim.metadata.namespace ?? ''}/${claim.metadata.name}"`;
    claimEvent(ports, claim, { type: 'Normal', reason: 'Provisioning', message });
  });
  try {
    const { notAfterMs, gateway } = attempt;
    return await ports.csi.createVolume(request, {
      timeoutMs: ports.timeoutMs,
      notAfterMs,
      gateway,
      migrated,
    });
  } finally {
    // A reason of its own: without one each claim would pay for an exception with a stack.
    answered.abort('answered');
  }
}

async function applyCreateFailure(
  ports: ProcessorPorts,
  { attempt, claim, run, replayed }: OpenCreation,
  { skeleton, error }: { skeleton: VolumeSkeleton; error: CsiError },
): Promise<Outcome> {
  const { records } = ports;
  const failure = judgeCreateFailure(error, {
    mayHideVolume: skeleton.source !== undefined && replayed?.ambiguous === true,
  });
  switch (failure.kind) {
    case 'not-forwarded': {
      await records.revert(attempt.id, attempt.owner);
      return failure.busy ? { kind: 'running', reason: error.message } : notReached(error);
    }
    case 'refused': {
      const words = failure.infeasible
        ? `Volume provisioning failed with infeasible error. Retries will be delayed. ${error.message}`
        : error.message;
      const result = await records.closeRefused(attempt.id, attempt.owner, error.codeName);
      await provisioningFailed(ports, { claim, run }, words, error.message);
      if (claim !== undefined && result === 'removed' && error.codeName === 'ResourceExhausted') {
        const moved = await requestReschedule(ports, claim);
        if (moved !== undefined) return moved;
      }
      if (claim === undefined && result === 'removed')
        return { kind: 'done', note: 'the driver refused, and the claim is gone' };
      const pause = failure.infeasible ? infeasibleDelay(ports, claim) : {};
      return {
        kind: 'retry',
        reason: error.message,
        ...pause,
        ...(result === 'removed' ? { isAbsent: true } : {}),
      };
    }
    case 'ambiguous': {
      await records.leaveAmbiguous(attempt.id, attempt.owner, error.codeName);
      await provisioningFailed(ports, { claim, run }, error.message);
      return failure.running
        ? { kind: 'running', reason: error.message }
        : { kind: 'retry', reason: error.message };
    }
  }
}
