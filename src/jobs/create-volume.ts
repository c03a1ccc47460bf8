import { create, toBinary } from '@bufbuild/protobuf';
import { CreateVolumeRequestSchema } from '../csi/generated/csi_pb.ts';
import type { CreateVolumeResponse } from '../csi/generated/csi_pb.ts';
import { CsiError } from '../csi/status.ts';
import type { Claim } from '../kube/objects.ts';
import type { Outcome } from '../queue/outcome.ts';
import type { Replay, VolumeRequest } from '../queue/volume-record/volume-record.ts';
import { judgeCreateFailure } from '../volumes/create-result.ts';
import { readAnswer } from '../volumes/persistent-volume.ts';
import type { VolumeAnswer, VolumeSkeleton } from '../volumes/persistent-volume.ts';
import type { SecretRef } from '../volumes/secret-ref.ts';
import type { Attempt } from './attempt.ts';
import { claimEvent } from './claim-events.ts';
import type { ProcessorPorts } from './ports.ts';
import { notReached } from './not-reached.ts';
import { readSecretValues, SecretMissing, waitForSecret, withoutSecrets } from './secret-values.ts';
import type { MadeVolume } from './store-volume.ts';

/** A record that this run owns, and what is to be made of it. */
export interface OpenCreation {
  readonly attempt: Attempt;
  /** Absent when the claim is gone: then the volume is finished all the same, and reclaimed by the ordinary way of deletion. */
  readonly claim: Claim | undefined;
  readonly stored: VolumeRequest;
  readonly replayed?: Replay;
  /** What becomes of the driver's answer; storeVolume writes the PV. */
  readonly keep: (ports: ProcessorPorts, made: MadeVolume) => Promise<Outcome>;
}

/** Sends the stored request with secrets read afresh and hands on the answer; every way out leaves the record as design §3 says. */
export async function createVolume(ports: ProcessorPorts, creation: OpenCreation): Promise<Outcome> {
  const { attempt, claim, stored, replayed } = creation;
  // Both texts were written by plan.ts and persistent-volume.ts of this contract version; the record says which version it has.
  const skeleton = JSON.parse(stored.skeleton) as VolumeSkeleton;
  if (replayed !== undefined && replayed.answer !== '') {
    return creation.keep(ports, { attempt, claim, skeleton, answer: JSON.parse(replayed.answer) as VolumeAnswer });
  }
  let request: FilledRequest;
  try {
    request = await withSecrets(ports, stored);
  } catch (error) {
    await ports.records.restore(attempt.id, attempt.owner);
    const message = error instanceof Error ? error.message : String(error);
    claimEvent(ports, claim, { type: 'Warning', reason: 'ProvisioningFailed', message });
    return error instanceof SecretMissing ? waitForSecret(ports, error) : { kind: 'retry', reason: message, error };
  }
  let response: CreateVolumeResponse;
  try {
    response = await called(ports, claim, request.bytes, attempt);
  } catch (error) {
    if (error instanceof CsiError) return failed(ports, creation, withoutSecrets(error, request.secrets));
    await ports.records.leaveAmbiguous(attempt.id, attempt.owner, 'Unknown');
    throw error;
  }
  const answer = readAnswer(response, skeleton);
  if (typeof answer === 'string') {
    const before = await ports.records.leaveAmbiguous(attempt.id, attempt.owner, 'BadAnswer');
    if (before !== 'BadAnswer') claimEvent(ports, claim, { type: 'Warning', reason: 'ProvisioningFailed', message: answer });
    return { kind: 'retry', reason: answer };
  }
  return creation.keep(ports, { attempt, claim, skeleton, answer });
}

/** A request as it goes out, and the secret values that must not come back in anybody's words. */
interface FilledRequest {
  readonly bytes: Uint8Array;
  readonly secrets: readonly string[];
}

/** The stored bytes with the secrets' field appended: protobuf merges what follows, so the stored part goes out byte for byte. */
async function withSecrets(ports: ProcessorPorts, stored: VolumeRequest): Promise<FilledRequest> {
  const request = Buffer.from(stored.request, 'base64');
  if (stored.secret === '') return { bytes: request, secrets: [] };
  const ref = JSON.parse(stored.secret) as SecretRef;
  const where = `error getting secret ${ref.name} in namespace ${ref.namespace}`;
  let secrets: Record<string, string> | undefined;
  try {
    secrets = await readSecretValues(ports, ref);
  } catch (cause) {
    throw new Error(`${where}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
  if (secrets === undefined) throw new SecretMissing(ref, `${where}: secrets "${ref.name}" not found`);
  const bytes = Buffer.concat([request, toBinary(CreateVolumeRequestSchema, create(CreateVolumeRequestSchema, { secrets }))]);
  return { bytes, secrets: Object.values(secrets) };
}

/** A call shorter than this gets no event of its own: one API write less per claim. */
const SLOW_CALL_MS = 1_000;

async function called(
  ports: ProcessorPorts,
  claim: Claim | undefined,
  request: Uint8Array,
  attempt: Attempt,
): Promise<CreateVolumeResponse> {
  const answered = new AbortController();
  void ports.clock.sleep(SLOW_CALL_MS, answered.signal).then(() => {
    if (answered.signal.aborted || claim === undefined) return;
    const message = `External provisioner is provisioning volume for claim "${claim.metadata.namespace ?? ''}/${claim.metadata.name}"`;
    claimEvent(ports, claim, { type: 'Normal', reason: 'Provisioning', message });
  });
  try {
    return await ports.csi.createVolume(request, { timeoutMs: ports.timeoutMs, notAfterMs: attempt.notAfterMs, gateway: attempt.gateway });
  } finally {
    // A reason of its own: without one each claim would pay for an exception with a stack.
    answered.abort('answered');
  }
}

async function failed(ports: ProcessorPorts, { attempt, claim }: OpenCreation, error: CsiError): Promise<Outcome> {
  const { records } = ports;
  const failure = judgeCreateFailure(error);
  switch (failure.kind) {
    case 'not-forwarded': {
      await records.restore(attempt.id, attempt.owner);
      return failure.busy ? { kind: 'running', reason: error.message } : notReached(error);
    }
    case 'refused': {
      const words = failure.infeasible
        ? `Volume provisioning failed with infeasible error. Retries will be delayed. ${error.message}`
        : error.message;
      const result = await records.closeRefused(attempt.id, attempt.owner, error.codeName);
      claimEvent(ports, claim, { type: 'Warning', reason: 'ProvisioningFailed', message: words });
      if (claim === undefined && result === 'removed') return { kind: 'done', note: 'the driver refused, and the claim is gone' };
      const delay = failure.infeasible ? { minDelayMs: ports.retryMaxMs } : {};
      return { kind: 'retry', reason: error.message, ...delay, ...(result === 'removed' ? { isAbsent: true } : {}) };
    }
    case 'ambiguous': {
      const before = await records.leaveAmbiguous(attempt.id, attempt.owner, error.codeName);
      // Per change of state: the tenth deadline of one volume tells nobody anything new.
      if (before !== error.codeName) claimEvent(ports, claim, { type: 'Warning', reason: 'ProvisioningFailed', message: error.message });
      return failure.running ? { kind: 'running', reason: error.message } : { kind: 'retry', reason: error.message };
    }
  }
}
