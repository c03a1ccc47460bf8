import { CsiError } from '../../csi/status.ts';
import { isAlreadyExists, KubeError } from '../../kube/kube-error.ts';
import type { Claim, Volume } from '../../kube/objects.ts';
import { readClaim } from '../../kube/read-claim.ts';
import { volumes } from '../../kube/resources.ts';
import { type JobKey, logFields } from '../../queue/contract.ts';
import { type Outcome, WORKER_STOPPING } from '../../queue/outcome.ts';
import type { Begun, Run } from '../../queue/run.ts';
import { askRedis } from '../../redis/ask-redis.ts';
import { traceHeaders } from '../../runtime/trace-id.ts';
import { requirementText } from '../../topology/parse-requirement.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import { identityOf } from '../../volumes/handles.ts';
import {
  type BadAnswer,
  isNameShortened,
  type PlannedRequest,
  readAnswer,
  type VolumeAnswer,
  volumeName,
} from '../../volumes/persistent-volume.ts';
import { waitForClassLimit, withinClassLimit } from '../class-limit.ts';
import type { ClaimRun, Dependencies } from '../dependencies.ts';
import { finished, markJob } from '../mark-job.ts';
import { createdAtMs } from '../operation-counts.ts';
import { recordClaimEvent } from '../outcomes.ts';
import { releaseCloneSource, releaseRestoredSnapshot } from '../release-sources.ts';
import { readSecretValues } from '../secret-values.ts';
import {
  type Creation,
  delayIfRecentlyInfeasible,
  endFailedCall,
  endIfOther,
  endUnusableAnswer,
  endUnwritten,
  endWithoutSecret,
} from './failed-creation.ts';
import { endWithoutCreation, planClaim } from './plan-claim.ts';

/** One run of a claim's job, from top to bottom: reads the claim, plans its volume, marks the job,
 * sends CreateVolume, writes the PV (docs/leak-proof.md, R1 to R7). Failures: failed-creation.ts.
 *
 * A run finishes what an earlier run has begun, even if the claim is gone. Then it plans from the
 * journal, the driver answers with the existing volume, and the run writes its PV. The usual
 * deletion removes both.
 * @throws KubeError, RedisUnavailable */
export async function reconcileClaim(deps: Dependencies, job: JobKey, run: Run): Promise<Outcome> {
  const limited = await waitForClassLimit(deps, job, run);
  if (limited !== undefined) return limited;
  const startMs = deps.clock.nowMs();
  const begun = await askRedis(run.begun());
  const claim = await seeClaim(deps, job, run, begun);
  const claimRun: ClaimRun = { ...deps, job, run, startMs, begun, claim };
  const outcome = (await delayIfRecentlyInfeasible(claimRun)) ?? (await planAndCreate(claimRun));
  // Upstream's metrics count each failed attempt. A run that did not reach the driver (`later`) is
  // no attempt; writeVolume counts the attempts with a volume.
  if (outcome.kind === 'done' ? outcome.needsNode : outcome.kind !== 'later')
    deps.counts.countNotProvisioned(claim);
  if (outcome.kind !== 'done' || claim === undefined) return outcome;
  return (await releaseCloneSource(deps, claim)) ?? outcome;
}

/** Gets the claim: in a job's first run from the watch of an ingest in this process, if there is
 * one. A process that serves one node reads it, since somebody may have selected a node. */
async function seeClaim(
  { freshClaim, facts, kube }: Dependencies,
  job: JobKey,
  run: Run,
  { leftMs }: Begun,
): Promise<Claim | undefined> {
  const isFirst = run.count === 1 && leftMs === undefined && facts().ownNode === undefined;
  return (isFirst ? freshClaim(job) : undefined) ?? readClaim(kube, job);
}

async function planAndCreate(claimRun: ClaimRun): Promise<Outcome> {
  const { run, claim, classOf } = claimRun;
  const written = await endIfWritten(claimRun);
  const intent =
    written === undefined
      ? await planClaim(claimRun)
      : ({ kind: 'end', outcome: written } as const);
  if (run.signal.aborted) return WORKER_STOPPING;
  if (intent.kind === 'create') {
    const { planned } = intent;
    // The limit also applies if the claim is gone.
    const cls = classOf(planned.volume.spec.storageClassName ?? '');
    return withinClassLimit(claimRun, { cls, isNeeded: true }, () =>
      createVolume({ ...claimRun, claim: intent.claim }, planned),
    );
  }
  const cls = claim && classOf(classNameOf(claim));
  return withinClassLimit(claimRun, { cls, isNeeded: false }, () =>
    endWithoutCreation(claimRun, intent),
  );
}

/** R2: looks for the PV that an earlier run of the job may have written. */
async function endIfWritten({
  kube,
  options,
  job: { uid },
  run,
  begun: { leftMs },
}: ClaimRun): Promise<Outcome | undefined> {
  const isFirst = run.count === 1 && leftMs === undefined;
  if (isFirst || options.volumeNamePrefix === '') return undefined;
  const name = volumeName(uid, options);
  const volume = await kube.get<Volume>(volumes, { name });
  if (volume === undefined) return undefined;
  const owner = volume.spec.claimRef?.uid;
  // If somebody removed the claimRef, the PV's name tells whose it is, unless names are shortened
  // (--volume-name-uuid-length).
  const isOurs = owner === uid || (owner === undefined && !isNameShortened(options));
  if (!isOurs) return undefined;
  return volume.metadata.deletionTimestamp === undefined
    ? finished(`volume ${name} exists`, leftMs)
    : { kind: 'later', reason: 'the PersistentVolume is being deleted' };
}

/** After a call this long the run reads the claim again before it sends the success event. After a
 * shorter call that read would cost more than an event on a claim that is gone. */
const LONG_CALL_MS = 10_000;

/** Reads the secrets, sends CreateVolume, and writes the PV. */
async function createVolume(claimRun: ClaimRun, planned: PlannedRequest): Promise<Outcome> {
  const { clock, kube } = claimRun;
  const secrets = await readSecretValues(kube, planned.secret);
  if (secrets.kind !== 'values') return endWithoutSecret(claimRun, secrets);
  const mark = await markJob(claimRun, requirementText(planned.requirement));
  if ('outcome' in mark) return mark.outcome;
  const creation: Creation = { ...claimRun, planned, mark, secrets: secrets.values };
  const sentMs = clock.nowMs();
  let answer: VolumeAnswer | BadAnswer;
  try {
    answer = await sendCreateVolume(creation);
  } catch (error) {
    if (error instanceof CsiError) return endFailedCall(creation, error);
    throw error;
  }
  if ('message' in answer) return endUnusableAnswer(creation, answer);
  const wasLong = clock.nowMs() - sentMs >= LONG_CALL_MS;
  return writeVolume(creation, answer, wasLong);
}

/** A call this long gets an event; a shorter one saves the write to the API server. */
const SLOW_CALL_MS = 2_000;

async function sendCreateVolume(creation: Creation): Promise<VolumeAnswer | BadAnswer> {
  const { csi, timeoutMs, job, claim, planned, mark, secrets } = creation;
  const slow = setTimeout(() => {
    if (claim === undefined) return;
    const { namespace = '', name } = claim.metadata;
    const message = `External provisioner is provisioning volume for claim "${namespace}/${name}"`;
    recordClaimEvent(creation, { type: 'Normal', reason: 'Provisioning', message });
  }, SLOW_CALL_MS);
  try {
    const answer = await csi.createVolume(
      { ...planned.request, secrets },
      {
        timeoutMs,
        notAfterMs: mark.notAfterMs,
        gateway: mark.endpoint,
        migrated: planned.isMigrated,
        metadata: traceHeaders(job.uid),
      },
    );
    return readAnswer(answer, planned);
  } finally {
    clearTimeout(slow);
  }
}

/** R4: writes the PV of a created volume, even if the claim is gone. If the write fails, the next
 * run repeats CreateVolume, and the driver answers with the same volume.
 * @param wasLong  the call took so long that the claim may have been deleted in the meantime */
async function writeVolume(
  creation: Creation,
  answer: VolumeAnswer,
  wasLong: boolean,
): Promise<Outcome> {
  const { capacity, clock, counts, kube, log } = creation;
  const { job, run, startMs, claim, planned, mark } = creation;
  const { volume } = answer;
  const timeoutMs = mark.writeLimitMs();
  if (timeoutMs === undefined)
    return { kind: 'later', reason: 'the driver answered too late; the next run writes the PV' };
  try {
    await kube.create(volumes, undefined, volume, { timeoutMs, isAnswerNeeded: false });
  } catch (error) {
    if (!(error instanceof KubeError)) throw error;
    if (!isAlreadyExists(error)) return endUnwritten(creation, error);
    const other = await endIfOther(creation, answer);
    if (other !== undefined) return other;
  }
  const { name } = volume.metadata;
  const { queuedMs } = run;
  const endMs = clock.nowMs();
  capacity.volumeChanged(volume.spec);
  counts.countProvisioned(claim, { tookMs: endMs - startMs, queuedMs, endMs });
  const fields = {
    ...logFields(job),
    class: volume.spec.storageClassName,
    volume: name,
    handle: identityOf(volume)?.id,
    pendingMs: claim && endMs - createdAtMs(claim, queuedMs),
    runs: run.count,
  };
  log.info(fields, 'volume provisioned');
  await releaseRestoredSnapshot(kube, log, planned.source);
  // A claim that was deleted during a long call gets no event.
  const isGone =
    wasLong &&
    claim !== undefined &&
    (await readClaim(kube, claim.metadata).catch(() => claim)) === undefined;
  const message = `Successfully provisioned volume ${name}`;
  if (!isGone)
    recordClaimEvent(creation, { type: 'Normal', reason: 'ProvisioningSucceeded', message });
  return mark.finished(`volume ${name}`);
}
