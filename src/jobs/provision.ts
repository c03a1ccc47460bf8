import { claims, classes, volumes } from '../kube/resources.ts';
import type { Claim, Volume } from '../kube/objects.ts';
import type { Run } from '../queue/consumer.ts';
import type { JobKey } from '../queue/contract.ts';
import type { Outcome } from '../queue/outcome.ts';
import type { OpenedCreate, VolumeRequest } from '../queue/volume-record/volume-record.ts';
import { judgeClaim } from '../volumes/eligibility.ts';
import { volumeName } from '../volumes/names.ts';
import { planVolume } from '../volumes/plan.ts';
import type { VolumePlan } from '../volumes/plan.ts';
import { hold, sentThrough, startAttempt } from './attempt.ts';
import type { Attempt } from './attempt.ts';
import { claimEvent } from './claim-events.ts';
import { isBelted, putOn, takeOff } from './claim-finalizer.ts';
import { createVolume } from './create-volume.ts';
import type { ProcessorPorts } from './ports.ts';
import { storeVolume } from './store-volume.ts';

/** One run of a claim's job: reads the claim afresh, plans its volume, opens the record, has the volume made and writes the PV.
 * A record that is open is finished whatever became of the claim (design invariant 3). */
export async function provision(ports: ProcessorPorts, job: JobKey, run: Pick<Run, 'signal'>): Promise<Outcome> {
  const { epoch } = ports.records;
  const found = await ports.kube.get<Claim>(claims, { namespace: job.namespace, name: job.name });
  const claim = found?.metadata.uid === job.uid ? found : undefined;
  const intent = intentOf(ports, claim);
  if (run.signal.aborted) return { kind: 'later', reason: 'this worker is stopping', delayMs: 0 };
  const isBeltWanted = ports.claimFinalizer && intent.kind === 'create' && claim !== undefined && !isBelted(claim);
  if (isBeltWanted && !(await putOn(ports, claim))) return { kind: 'later', reason: 'the claim is going away' };

  const outcome = await attemptClaim(ports, job, { claim, intent, epoch });
  if (claim === undefined || !(isBeltWanted || isBelted(claim))) return outcome;
  // While a claim is tried again its belt may stay on; one that is going away must not be held by it when nothing is open. A run that was told to come back knows
  // nothing of that: a Redis that lost its records lists none as open.
  const isAbsent = outcome.kind === 'retry' && outcome.isAbsent === true;
  const isOver = outcome.kind === 'done' || (isAbsent && claim.metadata.deletionTimestamp !== undefined);
  if (isOver && !(await ports.records.isOpen(job.uid))) await takeOff(ports, claim);
  return outcome;
}

async function attemptClaim(
  ports: ProcessorPorts,
  job: JobKey,
  { claim, intent, epoch }: { readonly claim: Claim | undefined; readonly intent: Intent; readonly epoch: string },
): Promise<Outcome> {
  const attempt = startAttempt(
    { nowMs: ports.clock.nowMs(), writeAllowanceMs: ports.writeAllowanceMs },
    { id: job.uid, owner: ports.newOwner(), job, epoch },
  );
  const opened =
    intent.kind === 'create'
      ? await ports.records.openCreate(attempt.id, { ...hold(attempt), planned: intent.planned, mode: 'plan' })
      : await ports.records.openExisting(attempt.id, hold(attempt));

  switch (opened.kind) {
    case 'none':
      return intent.kind === 'create'
        ? { kind: 'later', reason: 'the volume record was not opened' }
        : endWithoutRecord(ports, claim, intent);
    case 'opened':
      return intent.kind === 'create'
        ? createVolume(ports, { attempt: sentThrough(attempt, opened.endpoint), claim, stored: intent.planned, keep: storeVolume })
        : notOurs();
    case 'replay':
      return replay(ports, { attempt, claim, opened });
    case 'not-yet':
      return { kind: 'later', reason: opened.reason, delayMs: opened.waitMs };
    case 'busy':
      return { kind: 'running', reason: `another run is at this volume (${opened.state})` };
    case 'closed':
      return closed(ports, { attempt, claim, intent, state: opened.state });
  }
}

type Intent =
  | { readonly kind: 'create'; readonly planned: VolumeRequest }
  | { readonly kind: 'none'; readonly reason: string }
  | { readonly kind: 'no-class'; readonly className: string }
  | { readonly kind: 'populator' }
  | { readonly kind: 'refuse'; readonly message: string };

/** What we would do with the claim if nothing were under way. */
function intentOf(ports: ProcessorPorts, claim: Claim | undefined): Intent {
  if (claim === undefined) return { kind: 'none', reason: 'the claim is gone' };
  const driver = ports.driver();
  const verdict = judgeClaim(claim, driver, ports.classOf);
  if (verdict.kind === 'ignore') return { kind: 'none', reason: verdict.reason };
  if (verdict.kind === 'no-class') return verdict;
  const plan = planVolume({ claim, cls: verdict.cls, className: verdict.className, driver, options: ports.options });
  if (plan.kind === 'populator') return { kind: 'populator' };
  return plan.kind === 'refuse' ? plan : { kind: 'create', planned: requestOf(plan, ports.endpoint) };
}

function requestOf(plan: Extract<VolumePlan, { kind: 'create' }>, endpoint: string): VolumeRequest {
  return {
    request: Buffer.from(plan.request).toString('base64'),
    skeleton: JSON.stringify(plan.skeleton),
    secret: plan.secret === undefined ? '' : JSON.stringify(plan.secret),
    endpoint,
  };
}

function endWithoutRecord(ports: ProcessorPorts, claim: Claim | undefined, intent: Exclude<Intent, { kind: 'create' }>): Outcome {
  switch (intent.kind) {
    case 'none':
      return { kind: 'done', note: intent.reason };
    case 'no-class':
      return {
        kind: 'parked',
        reason: `storageClass "${intent.className}" not found`,
        until: { resource: classes.plural, name: intent.className, seen: '' },
      };
    case 'populator':
      claimEvent(ports, claim, {
        type: 'Normal',
        reason: 'Provisioning',
        message: 'Assuming an external populator will provision the volume',
      });
      return { kind: 'done', note: 'left to a volume populator' };
    case 'refuse':
      claimEvent(ports, claim, { type: 'Warning', reason: 'ProvisioningFailed', message: intent.message });
      return { kind: 'retry', reason: intent.message };
  }
}

/** Before a stored request is sent again, the PV of that name is looked at (invariant 4). */
async function replay(
  ports: ProcessorPorts,
  found: { attempt: Attempt; claim: Claim | undefined; opened: Extract<OpenedCreate, { kind: 'replay' }> },
): Promise<Outcome> {
  const { claim, opened } = found;
  const attempt = sentThrough(found.attempt, opened.stored.endpoint);
  const name = volumeName(attempt.id, ports.options);
  let volume: Volume | undefined;
  try {
    volume = await ports.kube.get<Volume>(volumes, { name });
  } catch (error) {
    // Nothing was sent: the next run need not wait for the end of this ownership, nor take it for a call of unknown end.
    await ports.records.restore(attempt.id, attempt.owner);
    throw error;
  }
  if (volume?.spec.claimRef?.uid === attempt.id) {
    if (volume.metadata.deletionTimestamp !== undefined) {
      await ports.records.restore(attempt.id, attempt.owner);
      return { kind: 'later', reason: `volume ${name} is being deleted` };
    }
    await ports.records.closeStored(attempt.id, attempt.owner, 'seen');
    return { kind: 'done', note: `volume ${name} was there already` };
  }
  return createVolume(ports, { attempt, claim, stored: opened.stored, replayed: opened, keep: storeVolume });
}

async function closed(
  ports: ProcessorPorts,
  found: { attempt: Attempt; claim: Claim | undefined; intent: Intent; state: 'stored' | 'deleting' | 'gone' },
): Promise<Outcome> {
  const { attempt, claim, intent, state } = found;
  if (intent.kind !== 'create') return endWithoutRecord(ports, claim, intent);
  if (state !== 'stored')
    return { kind: 'later', reason: `the volume of this claim is ${state}; it is not made a second time under the same UID` };
  const name = volumeName(attempt.id, ports.options);
  if ((await ports.kube.get<Volume>(volumes, { name })) !== undefined) return { kind: 'done', note: `volume ${name} exists` };
  // Somebody removed the PV of a claim that never got bound: its volume is made (or found by name) and written once more.
  const opened = await ports.records.openCreate(attempt.id, {
    ...hold(attempt),
    planned: intent.planned,
    mode: 'again',
  });
  if (opened.kind === 'replay') {
    const sent = sentThrough(attempt, opened.stored.endpoint);
    return createVolume(ports, { attempt: sent, claim, stored: opened.stored, replayed: opened, keep: storeVolume });
  }
  if (opened.kind === 'opened')
    return createVolume(ports, { attempt: sentThrough(attempt, opened.endpoint), claim, stored: intent.planned, keep: storeVolume });
  if (opened.kind === 'not-yet') return { kind: 'later', reason: opened.reason, delayMs: opened.waitMs };
  return { kind: 'later', reason: 'the volume record changed meanwhile' };
}

function notOurs(): Outcome {
  return { kind: 'done', note: 'nothing was open' };
}
