import { nodeAddress } from '../../gateway-client/gateway-address.ts';
import { isConflict, KubeError } from '../../kube/kube-error.ts';
import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import { chooseDeletingNode, type DeletingNode } from '../../node-local/node-rules.ts';
import type { NodeLocal } from '../../node-local/open-node-local.ts';
import { untilGatewayIsReady, untilGatewaysChange } from '../../node-local/wait-conditions.ts';
import type { JobKey } from '../../queue/contract.ts';
import { type Outcome, WORKER_STOPPING } from '../../queue/outcome.ts';
import { RefusedError } from '../../rules/rule.ts';
import {
  type DeletionPlan,
  recordId,
  shouldDelete,
  vanishedRecordIds,
} from '../../volumes/deletion.ts';
import { MAX_READ_AGE_MS, type RunHandle, startAttempt, type VolumeRun } from '../attempt.ts';
import type { Dependencies } from '../dependencies.ts';
import { setVolumeFinalizer } from '../finalizers.ts';
import { inTurn } from '../in-turn.ts';
import { reportDeletionFailed, waitForRecord, whyNodesAreUnknown } from '../outcomes.ts';
import { callDeleteVolume, deletionEnds, planDeletionOf, refuseDeletion } from './delete-volume.ts';
import { resolveCreation } from './resolve-creation.ts';

/** One run of a volume's job: reads the PV, adds or removes its finalizer, and deletes volume and
 * PV if the PV is Released with the policy Delete. A deletion that an earlier run left open ends
 * when the PV is to be kept or has vanished. */
export async function reconcileVolume(
  deps: Dependencies,
  job: JobKey,
  run: RunHandle,
): Promise<Outcome> {
  const { kube } = deps.cluster;
  const { records } = deps.redis;
  const readMs = deps.clock.nowMs();
  const dataEpoch = await records.seenDataEpoch();
  const ids = vanishedRecordIds(job, deps.settings.options);
  const halt = ids && (await records.haltUnlessOpen(ids));
  if (halt !== undefined) return waitForRecord(halt);
  const volume = await kube.get<Volume>(volumes, { name: job.name });
  if (volume?.metadata.uid !== job.uid) return handleVanishedVolume(deps, job, volume);
  const verdict = shouldDelete(volume, deps.driver.facts());
  switch (verdict.kind) {
    case 'ignore':
      if ((await endDeletion(deps, volume)) === 'busy') return DELETION_UNDER_WAY;
      return { kind: 'done', note: verdict.reason };
    case 'add-finalizer':
      return setVolumeFinalizer(kube, volume, true);
    case 'remove-finalizer':
      if ((await endDeletion(deps, volume)) === 'busy') return DELETION_UNDER_WAY;
      return setVolumeFinalizer(kube, volume, false);
    case 'delete':
      return deleteReleasedVolume(deps, { job, run, volume, readMs, dataEpoch });
  }
}

/** Another run owns the record. When its ownership has ended, a later run of this job ends the
 * deletion. */
const DELETION_UNDER_WAY: Outcome = { kind: 'running', reason: 'a deletion is under way' };

/** Ends a deletion that was begun before policy, claimRef or finalizers were edited: the volume is
 * kept. */
function endDeletion(
  { redis: { records, newOwner }, settings }: Dependencies,
  volume: Volume,
): Promise<'ok' | 'none' | 'busy'> {
  return records.endDeletion(recordId(volume, settings.options), newOwner(), 'stored');
}

/** Ends what is open of a deletion whose PV has vanished, for example because our finalizer was
 * removed by hand. If another PV has the name now, its record is left alone. */
async function handleVanishedVolume(
  { redis: { records, newOwner }, settings: { options } }: Dependencies,
  job: JobKey,
  namesake: Volume | undefined,
): Promise<Outcome> {
  const ids = vanishedRecordIds(job, options) ?? (await records.openIdsOf(job));
  const namesakeId = namesake === undefined ? undefined : recordId(namesake, options);
  let isBusy = false;
  for (const id of ids)
    if (id !== namesakeId)
      isBusy = (await records.endDeletion(id, newOwner(), 'gone')) === 'busy' || isBusy;
  if (isBusy) return DELETION_UNDER_WAY;
  return {
    kind: 'done',
    note: namesake === undefined ? 'the volume is gone' : 'another volume has the name now',
  };
}

/** A PV that is to be deleted, as a run has read it. */
interface ReleasedVolume extends VolumeRun {
  readonly job: JobKey;
  readonly readMs: number;
  /** The epoch of Redis' data before the read. */
  readonly dataEpoch: string;
}

/** Deletes the volume of a Released PV, then the PV, and counts the attempt in upstream's metrics.
 * @throws KubeError, RecordsUnavailable, OwnershipLost */
async function deleteReleasedVolume(
  deps: Dependencies,
  released: ReleasedVolume,
): Promise<Outcome> {
  const { counts } = deps.reports;
  const { volume, readMs } = released;
  try {
    const outcome = await attemptDeletion(deps, released);
    if (outcome.kind === 'done') counts.countDeleted(volume, deps.clock.nowMs() - readMs);
    else if (outcome.kind !== 'later') counts.countNotDeleted(volume);
    return outcome;
  } catch (error) {
    if (error instanceof KubeError) counts.countNotDeleted(volume);
    throw error;
  }
}

async function attemptDeletion(deps: Dependencies, released: ReleasedVolume): Promise<Outcome> {
  const { run, volume } = released;
  const gateway = await findDeletingGateway(deps, released);
  if ('outcome' in gateway) return gateway.outcome;
  const plan = planDeletionOf(deps, volume);
  if (plan.kind === 'refuse') return refuseDeletion(deps.cluster.events, volume, plan);
  if (plan.secret.note !== undefined)
    deps.reports.log.warn(
      { volume: volume.metadata.name, reason: plan.secret.note },
      'the volume is deleted without a secret',
    );
  if (run.signal.aborted) return WORKER_STOPPING;
  const cls = deps.cluster.classOf(volume.spec.storageClassName ?? '');
  return inTurn(deps, { key: released.job, cls, isNeeded: true }, async () => {
    const planned = { ...plan, planned: gateway.address };
    const ended = await deleteInDriver(deps, released, planned);
    return ended ?? deletePersistentVolume(deps, volume);
  });
}

type PlannedDeletion = Extract<DeletionPlan, { kind: 'delete' }> & {
  /** Address of the gateway to call where no leader has named one. */
  readonly planned: string;
};

/** Opens the record and continues by its state.
 * @returns undefined if the driver has deleted the volume, now or in an earlier run */
async function deleteInDriver(
  deps: Dependencies,
  { job, run, volume, readMs, dataEpoch }: ReleasedVolume,
  plan: PlannedDeletion,
): Promise<Outcome | undefined> {
  const id = recordId(volume, deps.settings.options);
  const attempt = startAttempt(deps, { id, job, dataEpoch }, readMs);
  const opened = await deps.redis.records.openDelete(id, {
    ...attempt,
    handle: plan.handle,
    endpoint: plan.planned,
  });
  switch (opened.kind) {
    case 'opened': {
      const { endpoint: gateway = plan.planned } = opened;
      const notAfterMs = Math.min(attempt.notAfterMs, readMs + MAX_READ_AGE_MS);
      const ends = deletionEnds(deps.redis, attempt);
      return callDeleteVolume(deps, { id, ends, volume, run, plan, gateway, notAfterMs });
    }
    case 'gone':
      return undefined;
    case 'creating':
      return resolveCreation(deps, attempt, { volume, run });
    case 'settle': {
      const reason = 'an earlier CreateVolume of unknown end may still be at work in the driver';
      return { kind: 'later', reason, delayMs: opened.waitMs };
    }
    case 'busy':
    case 'not-yet':
      return waitForRecord(opened);
  }
}

/** Deletes the PV of a volume that the driver has deleted. Already gone counts as success. */
async function deletePersistentVolume(
  { cluster: { kube } }: Dependencies,
  volume: Volume,
): Promise<Outcome> {
  const { name, uid } = volume.metadata;
  let left: Volume | undefined;
  try {
    left = await kube.delete<Volume>(volumes, { name }, { preconditions: { uid } });
  } catch (error) {
    if (isConflict(error))
      return { kind: 'later', reason: `volume ${name} changed meanwhile`, delayMs: 0 };
    throw error;
  }
  // The answer is the PV if finalizers are left on it, else a Status.
  if (left?.metadata?.finalizers === undefined) return { kind: 'done', note: `deleted ${name}` };
  return setVolumeFinalizer(kube, left, false);
}

/** The gateway through which a volume is deleted, or how the run ends where there is none. */
type DeletingGateway = { readonly address: string } | { readonly outcome: Outcome };

/** Finds the gateway through which a volume is deleted: with --node-deployment, that of a node from
 * which the volume can be reached. If there is no such node any more, the user is told. A node that
 * is there without a gateway may be another provisioner's, which then deletes the volume. A process
 * that serves one node leaves the volumes of others alone. */
async function findDeletingGateway(
  deps: Dependencies,
  { volume }: VolumeRun,
): Promise<DeletingGateway> {
  const { nodeLocal: local, endpoint } = deps.driver;
  if (local === undefined) return { address: endpoint };
  const unknown = whyNodesAreUnknown(deps);
  if (unknown !== undefined) return { outcome: unknown };
  const topology = deps.cluster.topology();
  const { name: driver, ownNode } = deps.driver.facts();
  const { gateways } = local;
  let found: DeletingNode;
  try {
    found = chooseDeletingNode(volume, { driver, gateways, topology });
    if (found.kind === 'none' && ownNode !== undefined)
      return { outcome: { kind: 'done', note: `the volume is not on node ${ownNode}` } };
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error;
    found = { kind: 'none', message: error.message, nodes: [], isGone: true };
  }
  if (found.kind === 'node') return { address: nodeAddress(found.name) };
  if (found.isGone) reportDeletionFailed(deps.cluster.events, volume, found.message);
  return { outcome: waitFor(found, local) };
}

/** Beyond this number of nodes, waits for the gateway of any. */
const MOST_CONDITIONS = 10;

function waitFor(
  { nodes, message }: Extract<DeletingNode, { kind: 'none' }>,
  { gateways }: NodeLocal,
): Outcome {
  const until =
    nodes.length > 0 && nodes.length <= MOST_CONDITIONS
      ? nodes.map(untilGatewayIsReady)
      : [untilGatewaysChange(gateways.readyNodes())];
  return { kind: 'parked', reason: message, until };
}
