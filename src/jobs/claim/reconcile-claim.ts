import { claims, classes, volumes } from '../../kube/resources.ts';
import type { Claim, Volume } from '../../kube/objects.ts';
import type { Run } from '../../queue/consumer.ts';
import type { JobKey } from '../../queue/contract.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { OpenedCreate } from '../../records/open-results.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import { judgeClaim } from '../../volumes/eligibility.ts';
import { volumeName } from '../../volumes/names.ts';
import { planVolume } from '../../volumes/plan.ts';
import type { WaitCondition } from '../../volumes/provisioning-options.ts';
import { openingOf, withGateway, startAttempt } from '../attempt.ts';
import type { Attempt } from '../attempt.ts';
import { claimEvent, provisioningFailed } from '../object-events.ts';
import type { ClaimRun } from '../object-events.ts';
import { hasClaimFinalizer, addClaimFinalizer, removeClaimFinalizer } from './claim-finalizer.ts';
import { callCreateVolume } from './call-create-volume.ts';
import { delayIfRecentlyInfeasible } from './infeasible-pause.ts';
import { freeName, keepName, findNameClash } from './name-clash.ts';
import type { ProcessorPorts } from '../ports.ts';
import { releaseCloneSource } from './release-clone-source.ts';
import { releaseRestoredSnapshot } from '../snapshot/release-restored.ts';
import { runRule } from '../run-rule.ts';
import { storeVolume, reportSuccess } from './store-volume.ts';

/** What of its run a creation knows. */
type ClaimJobRun = Pick<Run, 'signal' | 'lastReason' | 'heldOffMs'>;

/** One run of a claim's job: reads the claim afresh, plans its volume, opens the record, has the
 * volume made and writes the PV. A record that is open is finished whatever became of the claim
 * (design invariant 3). */
export async function reconcileClaim(
  ports: ProcessorPorts,
  job: JobKey,
  run: ClaimJobRun,
): Promise<Outcome> {
  const startMs = ports.clock.nowMs();
  const { incarnation } = ports.records;
  const found = await ports.kube.get<Claim>(claims, { namespace: job.namespace, name: job.name });
  const claim = found?.metadata.uid === job.uid ? found : undefined;
  const held = claim === undefined ? undefined : await delayIfRecentlyInfeasible(ports, claim, run);
  const intent: Intent =
    held === undefined ? await decideIntent(ports, claim) : { kind: 'none', reason: held.reason };
  if (run.signal.aborted) return { kind: 'later', reason: 'this worker is stopping', delayMs: 0 };
  const isBeltWanted =
    ports.claimFinalizer &&
    intent.kind === 'create' &&
    claim !== undefined &&
    !hasClaimFinalizer(claim);
  if (isBeltWanted && !(await addClaimFinalizer(ports, claim)))
    return { kind: 'later', reason: 'the claim is going away' };

  const outcome = held ?? (await attemptClaim(ports, job, { claim, run, intent, incarnation }));
  countAttempt(ports, { claim, intent, outcome, startMs });
  const isAbsent = outcome.kind === 'retry' && outcome.isAbsent === true;
  if (outcome.kind === 'done' || isAbsent) await freeName(ports, job.uid);
  else if (claim === undefined) await keepName(ports, job.uid);
  if (claim === undefined) return outcome;
  // While a claim is tried again its belt may stay on; one that is going away must not be held by
  // it when nothing is open. A run that was told to come back knows nothing of that: a Redis that
  // lost its records lists none as open.
  const hasFailed = outcome.kind === 'retry' || outcome.kind === 'parked' || held !== undefined;
  const isOver =
    outcome.kind === 'done' || (hasFailed && claim.metadata.deletionTimestamp !== undefined);
  if (
    (isBeltWanted || hasClaimFinalizer(claim)) &&
    isOver &&
    !(await ports.records.isOpen(job.uid))
  )
    await removeClaimFinalizer(ports, claim);
  // A claim that others are made from is kept until they are there.
  return outcome.kind === 'done' ? ((await releaseCloneSource(ports, claim)) ?? outcome) : outcome;
}

/** What is tried again without having asked the driver is no attempt. */
function countAttempt(
  ports: ProcessorPorts,
  run: {
    readonly claim: Claim | undefined;
    readonly intent: Intent;
    readonly outcome: Outcome;
    readonly startMs: number;
  },
): void {
  const { claim, intent, outcome } = run;
  if (intent.kind === 'none' || outcome.kind === 'later') return;
  if (outcome.kind === 'done' && intent.kind !== 'populator')
    ports.counts.provisioned(claim, ports.clock.nowMs() - run.startMs);
  else ports.counts.notProvisioned(claim);
}

async function attemptClaim(
  ports: ProcessorPorts,
  job: JobKey,
  {
    claim,
    run,
    intent,
    incarnation,
  }: ClaimRun & { readonly intent: Intent; readonly incarnation: string },
): Promise<Outcome> {
  const attempt = startAttempt(
    { nowMs: ports.clock.nowMs(), writeAllowanceMs: ports.writeAllowanceMs },
    { id: job.uid, owner: ports.newOwner(), job, incarnation },
  );
  const opened =
    intent.kind === 'create'
      ? await ports.records.openCreate(attempt.id, {
          ...openingOf(attempt),
          planned: intent.planned,
          mode: 'plan',
        })
      : await ports.records.openExisting(attempt.id, openingOf(attempt));

  switch (opened.kind) {
    case 'none':
      return intent.kind === 'create'
        ? { kind: 'later', reason: 'the volume record was not opened' }
        : endWithoutRecord(ports, { claim, run }, intent);
    case 'opened':
      return intent.kind === 'create'
        ? callCreateVolume(ports, {
            attempt: withGateway(attempt, opened.endpoint),
            claim,
            run,
            stored: intent.planned,
            keep: storeVolume,
          })
        : notOurs();
    case 'replay':
      return replayCreation(ports, { attempt, claim, run, opened });
    case 'not-yet':
      return { kind: 'later', reason: opened.reason, delayMs: opened.waitMs };
    case 'busy':
      return { kind: 'running', reason: `another run is at this volume (${opened.state})` };
    case 'closed':
      return handleClosedRecord(ports, { attempt, claim, run, intent, state: opened.state });
  }
}

type Intent =
  | { readonly kind: 'create'; readonly planned: VolumeRequest }
  | { readonly kind: 'none'; readonly reason: string }
  | { readonly kind: 'no-class'; readonly className: string }
  | { readonly kind: 'populator' }
  | {
      readonly kind: 'refuse';
      readonly message: string;
      readonly waitsFor: readonly WaitCondition[];
    };

/** What we would do with the claim if nothing were under way. */
async function decideIntent(ports: ProcessorPorts, claim: Claim | undefined): Promise<Intent> {
  if (claim === undefined) return { kind: 'none', reason: 'the claim is gone' };
  const driver = ports.driver();
  const verdict = judgeClaim(claim, driver, ports.classOf);
  if (verdict.kind === 'ignore') return { kind: 'none', reason: verdict.reason };
  if (verdict.kind === 'no-class') return verdict;
  const plan = await runRule(
    ports,
    planVolume({
      claim,
      cls: verdict.cls,
      className: verdict.className,
      driver,
      options: ports.options,
    }),
  );
  if (plan.kind === 'populator') return { kind: 'populator' };
  if (plan.kind === 'refuse') return plan;
  const clash = await findNameClash(ports, claim);
  if (clash !== undefined) return { kind: 'refuse', message: clash, waitsFor: [] };
  const { request, skeleton, secret } = plan;
  return { kind: 'create', planned: { request, skeleton, secret, endpoint: ports.endpoint } };
}

async function endWithoutRecord(
  ports: ProcessorPorts,
  { claim, run }: ClaimRun,
  intent: Exclude<Intent, { kind: 'create' }>,
): Promise<Outcome> {
  switch (intent.kind) {
    case 'none':
      return { kind: 'done', note: intent.reason };
    case 'no-class':
      return {
        kind: 'parked',
        reason: `storageClass "${intent.className}" not found`,
        until: [{ resource: classes.plural, name: intent.className, seen: '' }],
      };
    case 'populator':
      claimEvent(ports, claim, {
        type: 'Normal',
        reason: 'Provisioning',
        message: 'Assuming an external populator will provision the volume',
        component: 'external-provisioner',
        isAlwaysTold: true,
      });
      return { kind: 'done', note: 'left to a volume populator' };
    case 'refuse':
      await provisioningFailed(ports, { claim, run }, intent.message);
      return intent.waitsFor.length === 0
        ? { kind: 'retry', reason: intent.message }
        : { kind: 'parked', reason: intent.message, until: intent.waitsFor };
  }
}

/** Before a stored request is sent again, the PV of that name is looked at (invariant 4). */
async function replayCreation(
  ports: ProcessorPorts,
  found: ClaimRun & { attempt: Attempt; opened: Extract<OpenedCreate, { kind: 'replay' }> },
): Promise<Outcome> {
  const { claim, run, opened } = found;
  const attempt = withGateway(found.attempt, opened.stored.endpoint);
  // Of this or an earlier run: flags that make names may have changed since.
  const { skeleton } = opened.stored;
  const { name } = skeleton.volume.metadata;
  let volume: Volume | undefined;
  try {
    volume = await ports.kube.get<Volume>(volumes, { name });
  } catch (error) {
    // Nothing was sent: the next run need not wait for the end of this ownership, nor take it for a
    // call of unknown end.
    await ports.records.revert(attempt.id, attempt.owner);
    throw error;
  }
  if (volume?.spec.claimRef?.uid === attempt.id) {
    if (volume.metadata.deletionTimestamp !== undefined) {
      await ports.records.revert(attempt.id, attempt.owner);
      return { kind: 'later', reason: `volume ${name} is being deleted` };
    }
    await ports.records.closeStored(attempt.id, attempt.owner, 'seen');
    await reportSuccess(ports, { claim, skeleton });
    return { kind: 'done', note: `volume ${name} was there already` };
  }
  return callCreateVolume(ports, {
    attempt,
    claim,
    run,
    stored: opened.stored,
    replayed: opened,
    keep: storeVolume,
  });
}

async function handleClosedRecord(
  ports: ProcessorPorts,
  found: ClaimRun & { attempt: Attempt; intent: Intent; state: 'stored' | 'deleting' | 'gone' },
): Promise<Outcome> {
  const { attempt, claim, run, intent, state } = found;
  const isWanted = intent.kind === 'create' || intent.kind === 'refuse';
  if (isWanted && state === 'stored' && (await volumeExists(ports, attempt.id))) {
    // The plan of this run has put the snapshot's finalizer on again.
    if (intent.kind === 'create') await releaseRestoredSource(ports, intent.planned);
    return { kind: 'done', note: 'its volume exists' };
  }
  if (intent.kind !== 'create') return endWithoutRecord(ports, { claim, run }, intent);
  if (state !== 'stored')
    return {
      kind: 'later',
      reason: `the volume of this claim is ${state}; it is not made a second time under the same UID`,
    };
  // Somebody removed the PV of a claim that never got bound: its volume is made (or found by name)
  // and written once more.
  const opened = await ports.records.openCreate(attempt.id, {
    ...openingOf(attempt),
    planned: intent.planned,
    mode: 'again',
  });
  if (opened.kind === 'replay') {
    const sent = withGateway(attempt, opened.stored.endpoint);
    return callCreateVolume(ports, {
      attempt: sent,
      claim,
      run,
      stored: opened.stored,
      replayed: opened,
      keep: storeVolume,
    });
  }
  if (opened.kind === 'opened')
    return callCreateVolume(ports, {
      attempt: withGateway(attempt, opened.endpoint),
      claim,
      run,
      stored: intent.planned,
      keep: storeVolume,
    });
  if (opened.kind === 'not-yet')
    return { kind: 'later', reason: opened.reason, delayMs: opened.waitMs };
  return { kind: 'later', reason: 'the volume record changed meanwhile' };
}

async function volumeExists(ports: ProcessorPorts, claimUid: string): Promise<boolean> {
  if (ports.options.volumeNamePrefix === '') return false;
  const volume = await ports.kube.get<Volume>(volumes, {
    name: volumeName(claimUid, ports.options),
  });
  // Under a shortened name there may be somebody else's.
  return volume !== undefined && (volume.spec.claimRef?.uid ?? claimUid) === claimUid;
}

async function releaseRestoredSource(ports: ProcessorPorts, planned: VolumeRequest): Promise<void> {
  const { source } = planned.skeleton;
  if (source?.isReleased === true) await releaseRestoredSnapshot(ports, source);
}

function notOurs(): Outcome {
  return { kind: 'done', note: 'nothing was open' };
}
