import { VANISHED } from '../../explain/causes.ts';
import { readEntryOf } from '../../journal/list-journal.ts';
import { SELECTED_NODE } from '../../kube/keys.ts';
import { KubeError } from '../../kube/kube-error.ts';
import type { Claim, Class, Volume } from '../../kube/objects.ts';
import { claims, classes, volumes } from '../../kube/resources.ts';
import { logFields } from '../../queue/contract.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { WaitCondition } from '../../rules/rule.ts';
import { parseRequirement } from '../../topology/parse-requirement.ts';
import { supportsTopology } from '../../volumes/driver-facts.ts';
import { classNameOf, selectedNodeOf, shouldProvision } from '../../volumes/eligibility.ts';
import {
  isNameShortened,
  type PlannedRequest,
  volumeName,
} from '../../volumes/persistent-volume.ts';
import { planVolume, type VolumePlan } from '../../volumes/plan.ts';
import type { ClaimRun } from '../dependencies.ts';
import { finished } from '../mark-job.ts';
import { parkOrRetry, recordClaimEvent, reportProvisioningFailed } from '../outcomes.ts';
import { takeClaim } from './take-claim.ts';

/** What a run does with its claim. */
export type Intent =
  /** Create this volume. `claim`: undefined if it is gone. */
  | {
      readonly kind: 'create';
      readonly planned: PlannedRequest;
      readonly claim: Claim | undefined;
    }
  /** Nothing: the claim is gone, bound, or another provisioner's. */
  | { readonly kind: 'none'; readonly reason: string }
  /** End with this outcome. */
  | { readonly kind: 'end'; readonly outcome: Outcome }
  /** Leave the claim to a volume populator, ask the scheduler for another node, or tell the user
   * why no volume can be created now. */
  | Exclude<VolumePlan, { kind: 'create' }>;

/** R1: plans from the claim. Plans from the journal if a call was begun and the claim is now gone,
 * bound to another volume, or another provisioner's. The texts of refusals come from src/volumes/.
 * @throws KubeError if the API server can't be asked */
export async function planClaim(claimRun: ClaimRun): Promise<Intent> {
  const { run, begun } = claimRun;
  const { journal } = run.facts;
  const isBegun = begun.leftMs !== undefined;
  const intent = await planByClaim(claimRun);
  // M4: a creation that is begun stays on its node until the driver has answered.
  if (intent.kind === 'reschedule' && isBegun) return { ...intent, kind: 'refuse' };
  if (intent.kind === 'create' && journal === undefined)
    return { kind: 'none', reason: 'the leader adds another job, with a journal entry' };
  if (intent.kind !== 'none' || !isBegun) return intent;
  // Without a journal sutler can't plan the volume: it may be lost, as with upstream.
  return journal === ''
    ? { kind: 'end', outcome: finished(intent.reason, begun.leftMs) }
    : planByJournal(claimRun);
}

async function planByClaim(claimRun: ClaimRun): Promise<Intent> {
  const { bindsAtOnce, classOf, facts, begun, claim } = claimRun;
  if (claim === undefined) return { kind: 'none', reason: 'the claim is gone' };
  const verdict = shouldProvision(claim, facts(), classOf);
  if (verdict.kind === 'ignore') return { kind: 'none', reason: verdict.reason };
  if (verdict.kind === 'no-class')
    return { kind: 'end', outcome: { kind: 'parked', ...withoutClass(verdict.className) } };
  const { cls } = verdict;
  const plan = (of: Claim) => planOurs(claimRun, of, cls);
  const { ownNode } = facts();
  if (ownNode === undefined || selectedNodeOf(claim) !== '') return plan(claim);
  // A claim whose creation is begun has a node in its journal entry.
  const isFree = cls.volumeBindingMode === 'Immediate' && begun.leftMs === undefined;
  return isFree && bindsAtOnce
    ? takeClaim(claimRun, ownNode, { claim, cls }, plan)
    : { kind: 'none', reason: 'no node is selected for the claim yet' };
}

async function planByJournal(claimRun: ClaimRun): Promise<Intent> {
  const { classOf, journal, kube, job, run, begun } = claimRun;
  const stay = (why: string, until?: readonly WaitCondition[]): Intent => ({
    kind: 'end',
    outcome: stayInJournal(claimRun, why, until, begun.leftMs),
  });
  const entry = await readEntryOf(kube, journal, run.facts.journal ?? '', job.uid);
  if (entry === undefined) return stay('the journal has no entry of it');
  const className = classNameOf(entry.claim);
  const cls = entry.cls ?? classOf(className);
  if (cls === undefined) {
    const { reason, until } = withoutClass(className);
    return stay(reason, until);
  }
  const intent = await planOurs(claimRun, entry.claim, cls);
  if (intent.kind === 'create') return { ...intent, claim: undefined };
  return 'message' in intent
    ? stay(intent.message, intent.waitsFor)
    : stay('it is left to a volume populator');
}

/** @param claim  from the API server or from the journal */
async function planOurs(
  { facts, kube, options, topology, begun: { leftMs, place } }: ClaimRun,
  claim: Claim,
  cls: Class,
): Promise<Exclude<Intent, { kind: 'none' | 'end' }>> {
  const plan = await planVolume(kube, {
    claim,
    cls,
    driver: facts(),
    options,
    topology: topology(),
    // The topology of an earlier call.
    place: leftMs === undefined ? undefined : parseRequirement(place),
  });
  if (plan.kind !== 'create') return plan;
  const clash = await findNameClash(claim.metadata.uid, { kube, options });
  return clash === undefined
    ? { kind: 'create', planned: plan, claim }
    : { kind: 'refuse', message: clash, waitsFor: [] };
}

/** Checks whether another claim has the same shortened volume name (--volume-name-uuid-length).
 * Then the UIDs of both claims begin alike, and the driver would give both the same volume. Names
 * with whole UIDs can't clash.
 * @returns the refusal for the user; undefined without a clash */
async function findNameClash(
  uid: string,
  { kube, options }: Pick<ClaimRun, 'kube' | 'options'>,
): Promise<string | undefined> {
  if (!isNameShortened(options) || options.volumeNamePrefix === '') return undefined;
  const name = volumeName(uid, options);
  const volume = await kube.get<Volume>(volumes, { name });
  const other = volume?.spec.claimRef?.uid;
  if (volume === undefined || other === uid) return undefined;
  if (other === undefined)
    return (
      `PersistentVolume ${name} belongs to no claim and has the name that ` +
      'this claim’s volume would get; delete it, or create this claim again'
    );
  return (
    `volume name ${name} belongs to the claim with UID ${other}, whose UID begins alike; ` +
    'raise --volume-name-uuid-length, or create this claim again'
  );
}

function withoutClass(name: string) {
  const until = [{ resource: classes.plural, name, seen: '' }];
  return { reason: `storageClass "${name}" not found`, until };
}

/** R7: keeps the entry of a vanished claim for which no CreateVolume can be planned.
 * @param until  the objects whose change may make planning possible
 * @param leftMs  how long calls of earlier runs may still be at work in the driver */
export function stayInJournal(
  { facts, log, job }: ClaimRun,
  why: string,
  until: readonly WaitCondition[] = [],
  leftMs = 0,
): Outcome {
  const reason =
    `${VANISHED}, but sutler can't ask for it: ${why}; ` +
    `restore what is missing, or look for the volume and run: ` +
    `sutler forget ${job.uid} --driver-name=${facts().name} --why=REASON`;
  log.warn({ ...logFields(job), reason }, 'a vanished claim stays in the journal');
  return leftMs > 0
    ? { kind: 'later', reason, delayMs: leftMs }
    : { kind: 'parked', reason, until };
}

/** Ends the run of a claim for which no volume is to be created. */
export async function endWithoutCreation(
  claimRun: ClaimRun,
  intent: Exclude<Intent, { kind: 'create' }>,
): Promise<Outcome> {
  const { counts, claim } = claimRun;
  switch (intent.kind) {
    case 'none':
      return { kind: 'done', note: intent.reason };
    case 'end':
      return intent.outcome;
    case 'populator':
      counts.countNotProvisioned(claim);
      recordClaimEvent(claimRun, {
        type: 'Normal',
        reason: 'Provisioning',
        message: 'Assuming an external populator will provision the volume',
        component: 'external-provisioner',
        isAlwaysTold: true,
      });
      return { kind: 'done', note: 'left to a volume populator' };
    case 'refuse':
    case 'reschedule': {
      const { kind, message: reason, waitsFor } = intent;
      reportProvisioningFailed(claimRun, reason);
      // If the claim has no selected node to remove, it waits for a change of the nodes.
      const hasNode = claim?.metadata.annotations?.[SELECTED_NODE] !== undefined;
      if (kind === 'refuse' || !hasNode) return parkOrRetry(reason, waitsFor);
      return (await requestReschedule(claimRun)) ?? { kind: 'retry', reason };
    }
  }
}

/** Asks the scheduler for another node by removing the selected node from a claim whose volume
 * can't be created for it (sig-storage-lib-external-provisioner controller/controller.go
 * rescheduleProvisioning).
 * @returns undefined if the claim is gone or has no selected node, or if the write failed */
export async function requestReschedule({
  facts,
  kube,
  log,
  options,
  claim,
}: ClaimRun): Promise<Outcome | undefined> {
  if (claim === undefined || !supportsTopology(facts(), options.gates)) return undefined;
  const { [SELECTED_NODE]: node = '', ...annotations } = claim.metadata.annotations ?? {};
  if (node === '') return undefined;
  const { namespace = '', name } = claim.metadata;
  const changed = { ...claim, metadata: { ...claim.metadata, annotations } };
  try {
    await kube.update(claims, { namespace, name }, changed);
  } catch (error) {
    if (!(error instanceof KubeError)) throw error;
    log.warn(
      { claim: `${namespace}/${name}`, err: error },
      'could not remove the selected node from the claim; the next run tries again',
    );
    return undefined;
  }
  return { kind: 'done', note: 'the scheduler is asked for another node', needsNode: true };
}
