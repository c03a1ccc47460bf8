import type { Claim } from '../../kube/objects.ts';
import type { Run } from '../../queue/consumer.ts';
import type { JobKey } from '../../queue/contract.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { type ClaimAttempt, startAttempt } from '../attempt.ts';
import { waitForRecord } from '../common-outcomes.ts';
import type { ProcessorPorts } from '../ports.ts';
import { readClaim } from '../read-claims.ts';
import { callCreateVolume } from './call-create-volume.ts';
import { addClaimFinalizer, removeClaimFinalizer } from './claim-finalizer.ts';
import { decideIntent, type Intent } from './decide-intent.ts';
import { endWithoutCreation } from './end-without-creation.ts';
import { handleClosedRecord } from './handle-closed-record.ts';
import { delayIfRecentlyInfeasible } from './hold-off.ts';
import { freeName, keepName } from './name-clash.ts';
import { releaseCloneSource } from './release-clone-source.ts';
import { replayCreation } from './replay-creation.ts';

/** One run of a claim's job: reads the claim, plans its volume, opens the volume record, has the
 * driver create the volume, writes the PV and closes the record. A record that is open already is
 * finished whatever became of the claim (invariant 3). */
export async function reconcileClaim(
  ports: ProcessorPorts,
  job: JobKey,
  run: Pick<Run, 'signal' | 'lastReason' | 'heldOffMs'>,
): Promise<Outcome> {
  const startMs = ports.clock.nowMs();
  const { incarnation } = ports.records;
  const claim = await readClaim(ports, job);
  const delayed = await delayIfRecentlyInfeasible(ports, claim, run);
  if (delayed !== undefined) {
    if (claim?.metadata.deletionTimestamp !== undefined) await removeClaimFinalizer(ports, claim);
    return delayed;
  }
  const intent = await decideIntent(ports, claim);
  if (run.signal.aborted) return { kind: 'later', reason: 'this worker is stopping', delayMs: 0 };

  let kept = claim;
  if (intent.kind === 'create' && ports.claimFinalizer) {
    kept = await addClaimFinalizer(ports, intent.claim);
    if (kept === undefined)
      return { kind: 'later', reason: 'the claim is being deleted, or was replaced' };
  }
  const attempt = startAttempt(ports, { id: job.uid, job, incarnation });
  const outcome = await createOrFinish(ports, { attempt, claim, run }, intent);
  countAttempt(ports, { claim, intent, outcome, startMs });
  return releaseClaim(ports, { job, claim: kept, outcome });
}

/** Opens the record and continues by what it says: the request of this run's plan is sent, or the
 * creation that an earlier run left open is finished. */
async function createOrFinish(
  ports: ProcessorPorts,
  { attempt, claim, run }: ClaimAttempt,
  intent: Intent,
): Promise<Outcome> {
  const opened =
    intent.kind === 'create'
      ? await ports.records.openCreate(attempt.id, {
          ...attempt,
          planned: intent.planned,
          mode: 'plan',
        })
      : await ports.records.openExisting(attempt.id, attempt);
  switch (opened.kind) {
    case 'none':
      return intent.kind === 'create'
        ? { kind: 'later', reason: 'the volume record was not opened' }
        : endWithoutCreation(ports, { claim, run }, intent);
    case 'opened':
      return intent.kind === 'create'
        ? callCreateVolume(ports, {
            attempt: { ...attempt, gateway: opened.endpoint ?? '' },
            claim,
            run,
            stored: intent.planned,
          })
        : { kind: 'done', note: 'no creation was open' };
    case 'replay':
      return replayCreation(ports, { attempt, claim, run, opened });
    case 'closed':
      return handleClosedRecord(ports, { attempt, claim, run, intent, state: opened.state });
    case 'busy':
    case 'not-yet':
      return waitForRecord(opened);
  }
}

/** Counts the run in upstream's metrics. Runs that never reached the driver and will be repeated are
 * not counted. */
function countAttempt(
  ports: ProcessorPorts,
  ended: {
    readonly claim: Claim | undefined;
    readonly intent: Intent;
    readonly outcome: Outcome;
    readonly startMs: number;
  },
): void {
  const { claim, intent, outcome, startMs } = ended;
  if (intent.kind === 'none' || outcome.kind === 'later') return;
  if (outcome.kind === 'done' && intent.kind !== 'populator')
    ports.counts.countProvisioned(claim, ports.clock.nowMs() - startMs);
  else ports.counts.countNotProvisioned(claim);
}

/** Releases what the run kept and does not need any more: the volume's name, the claim's finalizer,
 * and the claim itself if clones were created from it. */
async function releaseClaim(
  ports: ProcessorPorts,
  ended: {
    readonly job: JobKey;
    readonly claim: Claim | undefined;
    readonly outcome: Outcome;
  },
): Promise<Outcome> {
  const { job, claim, outcome } = ended;
  const isAbsent = outcome.kind === 'retry' && outcome.isAbsent === true;
  if (outcome.kind === 'done' || isAbsent) await freeName(ports, job.uid);
  else if (claim === undefined) await keepName(ports, job.uid);
  if (claim === undefined) return outcome;
  // While attempts go on the finalizer stays on, except on a claim that is being deleted: it must
  // not wait for us when no record is open. After `later` and `running` that is not known: if Redis
  // lost its records, none of them is listed as open.
  const hasFailed = outcome.kind === 'retry' || outcome.kind === 'parked';
  const isBeingDeleted = claim.metadata.deletionTimestamp !== undefined;
  if (outcome.kind === 'done' || (hasFailed && isBeingDeleted))
    await removeClaimFinalizer(ports, claim);
  return outcome.kind === 'done' ? ((await releaseCloneSource(ports, claim)) ?? outcome) : outcome;
}
