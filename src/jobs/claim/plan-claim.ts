import { VANISHED } from '../../explain/causes.ts';
import type { Begun } from '../../queue/doubt.ts';
import { nodeAddress } from '../../gateway-client/gateway-address.ts';
import { readEntryOf } from '../../journal/list-journal.ts';
import { SELECTED_NODE } from '../../kube/keys.ts';
import { isConflict, KubeError } from '../../kube/kube-error.ts';
import type { Claim } from '../../kube/objects.ts';
import { claims, classes, csiNodes } from '../../kube/resources.ts';
import { chooseNode } from '../../node-local/choose-node.ts';
import { eligibleNodes } from '../../node-local/node-rules.ts';
import type { NodeLocal } from '../../node-local/open-node-local.ts';
import {
  ANY,
  untilGatewayIsReady,
  untilGatewaysChange,
  untilRoomGrows,
} from '../../node-local/wait-conditions.ts';
import { type JobKey, logFields } from '../../queue/contract.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { WaitCondition } from '../../rules/rule.ts';
import { parseRequirement } from '../../topology/parse-requirement.ts';
import { onlyNode, type TopologyRequirement } from '../../topology/requirement.ts';
import { supportsTopology } from '../../volumes/driver-facts.ts';
import { classNameOf, selectedNodeOf, shouldProvision } from '../../volumes/eligibility.ts';
import type { VolumeRequest } from '../../volumes/persistent-volume.ts';
import { type PlanInput, planVolume, type VolumePlan } from '../../volumes/plan.ts';
import type { Dependencies } from '../dependencies.ts';
import {
  parkOrRetry,
  recordClaimEvent,
  reportProvisioningFailed,
  whyNodesAreUnknown,
} from '../outcomes.ts';
import { runRule } from '../read-objects.ts';
import { findNameClash } from './write-volume.ts';

/** A claim to plan for, its class, and where an earlier call asked for its volume. */
type OurClaim = Pick<PlanInput, 'claim' | 'cls' | 'className' | 'place'>;

/** Decides what to do with a claim: whether it is ours (src/volumes/eligibility.ts), and the
 * request for its volume (src/volumes/plan.ts). The texts of refusals come from src/volumes/, those
 * of clones from clone-source.ts there, those of restores from snapshot-source.ts.
 * @throws KubeError if the API server can't be asked */
export async function planClaim(
  deps: Dependencies,
  claim: Claim | undefined,
  begun: Begun,
): Promise<Intent> {
  if (claim === undefined) return { kind: 'none', reason: 'the claim is gone' };
  const { cluster, driver } = deps;
  const verdict = shouldProvision(claim, driver.facts(), cluster.classOf);
  if (verdict.kind === 'ignore') return { kind: 'none', reason: verdict.reason };
  if (verdict.kind === 'no-class') return verdict;
  const { cls, className } = verdict;
  const ours = { claim, cls, className, place: placeOf(begun) };
  return driver.nodeLocal === undefined
    ? planOurs(deps, ours)
    : planOnNode(deps, driver.nodeLocal, ours, begun.leftMs !== undefined);
}

/** R1: plans by what the journal has of a claim that is gone, bound elsewhere, or another's by now.
 * @param object  the journal object that the claim's job names
 * @throws KubeError */
export async function planFromJournal(
  deps: Dependencies,
  { uid }: JobKey,
  object: string | undefined,
  begun: Begun,
): Promise<Intent> {
  const { cluster, driver } = deps;
  const entry = await readEntryOf(cluster.kube, deps.journal, object ?? '', uid);
  if (entry === undefined) return { kind: 'none', reason: 'the journal has no entry of it' };
  const { claim } = entry;
  const className = classNameOf(claim);
  const cls = entry.cls ?? cluster.classOf(className);
  if (cls === undefined) return { kind: 'no-class', className };
  const ours = { claim, cls, className, place: placeOf(begun) };
  const node = selectedNodeOf(claim);
  if (driver.nodeLocal === undefined) return planOurs(deps, ours);
  if (node === '') return { kind: 'none', reason: 'the journal does not know its node' };
  return planFor(deps, ours, node);
}

/** R7: a volume may exist for a claim that is gone, and it can't be planned what to ask the driver.
 * The entry stays in the journal, and the run comes again after the longest delay. */
export function stayInJournal(
  { driver, reports: { log } }: Dependencies,
  job: JobKey,
  { why, until }: { readonly why: string; readonly until: readonly WaitCondition[] },
  leftMs = 0,
): Outcome {
  const reason =
    `${VANISHED} that can't be asked for any more: ${why}; ` +
    `put back what is missing, or look for the volume and run: ` +
    `sutler forget ${job.uid} --driver-name=${driver.facts().name} --why=REASON`;
  log.warn({ ...logFields(job), reason }, 'a vanished claim stays in the journal');
  return leftMs > 0
    ? { kind: 'later', reason, delayMs: leftMs }
    : { kind: 'parked', reason, until };
}

function placeOf({ leftMs, place }: Begun): TopologyRequirement | undefined {
  return leftMs === undefined ? undefined : parseRequirement(place);
}

async function planOurs(
  { cluster, driver, settings: { options } }: Dependencies,
  { claim, cls, className, place }: OurClaim,
): Promise<Intent> {
  const facts = driver.facts();
  const topology = cluster.topology();
  const rule = planVolume({ claim, cls, className, driver: facts, options, topology, place });
  const plan = await runRule(cluster.kube, rule);
  if (plan.kind !== 'create') return plan;
  const clash = await findNameClash(cluster.kube, options, claim.metadata.uid);
  if (clash !== undefined) return { kind: 'refuse', message: clash, waitsFor: [] };
  const { kind: _, name: __, ...request } = plan;
  return { kind: 'create', claim, planned: { ...request, endpoint: driver.endpoint } };
}

type Wait = Extract<Intent, { readonly kind: 'wait' }>;

/** Decides what to do with a claim of a driver that runs on each node: creates its volume on its
 * selected node, or selects the node of a claim that has none and may be bound at once. Upstream:
 * external-provisioner pkg/controller/controller.go checkNode.
 * @throws KubeError, RedisUnavailable */
async function planOnNode(
  deps: Dependencies,
  local: NodeLocal,
  ours: OurClaim,
  isBegun: boolean,
): Promise<Intent> {
  const { claim, cls } = ours;
  const selected = selectedNodeOf(claim);
  if (selected !== '') {
    const absent = whyNotThere(deps, local, selected);
    // What is begun on a node that may never come back stays so: the user is told.
    const message = `no gateway is ready on node ${selected}; if it is gone for good, delete the Node object`;
    if (absent !== undefined) return isBegun ? { ...absent, message } : absent;
    return planFor(deps, ours, selected);
  }
  // One that was begun has a node, which the journal knows.
  if (cls.volumeBindingMode !== 'Immediate' || !local.choosesNodes || isBegun)
    return { kind: 'none', reason: 'no node is selected for the claim yet' };
  return chooseAndSelect(deps, local, ours);
}

/** Leaves a claim alone whose node has no gateway: it may be another provisioner's. If the node is
 * gone, planning gives the claim back.
 * @returns undefined if the claim is to be planned */
function whyNotThere(deps: Dependencies, { gateways }: NodeLocal, node: string): Wait | undefined {
  if (gateways.isReady(node)) return undefined;
  const topology = deps.cluster.topology();
  if (topology !== undefined && topology.csiNode(node) === undefined) return undefined;
  const reason = `no gateway is ready on node ${node}, which is selected for the claim`;
  const until: WaitCondition[] = [untilGatewayIsReady(node)];
  if (topology !== undefined)
    until.push({ resource: csiNodes.plural, name: ANY, seen: topology.versionOf('csinodes') });
  return wait({ kind: 'parked', reason, until });
}

/** Plans as a provisioner would that runs on the node. */
function planFor(deps: Dependencies, ours: OurClaim, node: string): Promise<Intent> {
  const { cluster, driver, settings } = deps;
  const { options } = settings;
  const topology = cluster.topology();
  const identity = `${options.identity}-${node}`;
  const there = {
    ...deps,
    cluster: { ...cluster, topology: () => topology && onlyNode(topology, node) },
    driver: { ...driver, endpoint: nodeAddress(node) },
    settings: { ...settings, options: { ...options, identity } },
  };
  return planOurs(there, ours);
}

/** Selects the node of a claim. Its volume is created by the job that the claim gets then, of which
 * the journal knows its node. */
async function chooseAndSelect(
  deps: Dependencies,
  local: NodeLocal,
  ours: OurClaim,
): Promise<Intent> {
  const { claim, cls } = ours;
  const unknown = whyNodesAreUnknown(deps);
  if (unknown !== undefined) return wait(unknown);
  const topology = deps.cluster.topology();
  const readyNodes = local.gateways.readyNodes();
  const nodes = eligibleNodes({ cls, readyNodes, topology });
  const [any] = nodes;
  const { ownNode } = deps.driver.facts();
  if (any === undefined) return ownNode === undefined ? noNode(readyNodes) : notHere(deps, ownNode);
  // Also checks the claim, before any node is asked. Nothing but the topology differs by node.
  const example = await planFor(deps, withSelectedNode(ours, any.name), any.name);
  if (example.kind !== 'create')
    // One node tells the user.
    return ownNode === undefined ? example : selectNode(deps, local, ours, any.name);
  const choice = await chooseNode(local, {
    claimUid: claim.metadata.uid,
    className: cls.metadata.name,
    request: example.planned.request,
    nodes,
    hasCapacity: deps.driver.facts().controllerCapabilities.has('GET_CAPACITY'),
  });
  switch (choice.kind) {
    case 'node':
      return selectNode(deps, local, ours, choice.name);
    case 'busy':
      return wait({
        kind: 'later',
        reason: 'the room that nodes have may be needed by volumes that are being created',
      });
    case 'unreachable':
      return wait({ kind: 'later', reason: choice.reason });
    case 'full':
      return noRoom(choice, readyNodes, ownNode);
  }
}

function withSelectedNode(ours: OurClaim, node: string): OurClaim {
  const { claim } = ours;
  const { metadata } = claim;
  const annotations = { ...metadata.annotations, [SELECTED_NODE]: node };
  return { ...ours, claim: { ...claim, metadata: { ...metadata, annotations } } };
}

/** Writes the node to the claim. Whoever else selected a node meanwhile wins. */
async function selectNode(
  deps: Dependencies,
  { room }: NodeLocal,
  ours: OurClaim,
  node: string,
): Promise<Intent> {
  const { namespace = '', name, uid } = ours.claim.metadata;
  try {
    const { claim } = withSelectedNode(ours, node);
    await deps.cluster.kube.update<Claim>(claims, { namespace, name }, claim);
    const note = `node ${node} is selected for the claim`;
    deps.reports.log.debug({ claim: `${namespace}/${name}`, node }, note);
    return wait({ kind: 'done', note, needsNode: true });
  } catch (error) {
    await room.release(uid);
    if (!isConflict(error)) throw error;
    return wait({ kind: 'later', reason: 'the claim has changed meanwhile', delayMs: 0 });
  }
}

function noNode(readyNodes: readonly string[]): Wait {
  const message =
    `none of the ${readyNodes.length} nodes with a gateway can have the volume: the driver is ` +
    'not registered there, or the class’s allowed topologies exclude them';
  const until = [untilGatewaysChange(readyNodes)];
  return { ...wait({ kind: 'parked', reason: message, until }), message };
}

/** Waits in silence where other nodes, which have processes of their own, may take the claim. */
function noRoom(
  { message, roomVersion }: { readonly message: string; readonly roomVersion: string },
  readyNodes: readonly string[],
  ownNode: string | undefined,
): Wait {
  const until = [untilRoomGrows(roomVersion), untilGatewaysChange(readyNodes)];
  const parked = wait({ kind: 'parked', reason: message, until });
  return ownNode === undefined ? { ...parked, message } : parked;
}

/** The only node of this process can't have the volume; others may. */
function notHere({ cluster }: Dependencies, ownNode: string): Wait {
  const reason =
    `node ${ownNode} can't have the volume: the driver is not registered there, or the class’s ` +
    'allowed topologies exclude it';
  const topology = cluster.topology();
  const until = (['nodes', 'csinodes'] as const).flatMap((resource): WaitCondition[] =>
    topology === undefined ? [] : [{ resource, name: ANY, seen: topology.versionOf(resource) }],
  );
  return wait(parkOrRetry(reason, until));
}

function wait(outcome: Outcome): Wait {
  return { kind: 'wait', outcome };
}

/** What a run does with its claim. */
export type Intent =
  /** Create the volume of this claim by this request. `isGone`: the claim is the journal's. */
  | {
      readonly kind: 'create';
      readonly claim: Claim;
      readonly planned: VolumeRequest;
      readonly isGone?: true;
    }
  /** Nothing: the claim is gone, bound, or another provisioner's. */
  | { readonly kind: 'none'; readonly reason: string }
  /** End with this outcome. `message`: for the user, if there is something to tell. */
  | { readonly kind: 'wait'; readonly outcome: Outcome; readonly message?: string }
  /** Wait for the claim's class. */
  | { readonly kind: 'no-class'; readonly className: string }
  /** Leave the claim to a volume populator, ask the scheduler for another node, or tell the user
   * why no volume can be created now. */
  | Exclude<VolumePlan, { kind: 'create' }>;

/** Ends the run of a claim for which no volume is to be created. */
export async function endWithoutCreation(
  deps: Dependencies,
  claim: Claim | undefined,
  intent: Exclude<Intent, { kind: 'create' }>,
): Promise<Outcome> {
  const { events } = deps.cluster;
  switch (intent.kind) {
    case 'none':
      return { kind: 'done', note: intent.reason };
    case 'wait':
      if (intent.message !== undefined) reportProvisioningFailed(events, claim, intent.message);
      return intent.outcome;
    case 'no-class':
      return {
        kind: 'parked',
        reason: `storageClass "${intent.className}" not found`,
        until: [{ resource: classes.plural, name: intent.className, seen: '' }],
      };
    case 'populator':
      recordClaimEvent(events, claim, {
        type: 'Normal',
        reason: 'Provisioning',
        message: 'Assuming an external populator will provision the volume',
        component: 'external-provisioner',
        isAlwaysTold: true,
      });
      return { kind: 'done', note: 'left to a volume populator' };
    case 'refuse':
      reportProvisioningFailed(events, claim, intent.message);
      return parkOrRetry(intent.message, intent.waitsFor);
    case 'reschedule':
      reportProvisioningFailed(events, claim, intent.message);
      return rescheduleOrPark(deps, claim, intent);
  }
}

/** Asks for another node. A claim from which no selected node can be removed waits for a change of
 * the nodes. */
async function rescheduleOrPark(
  deps: Dependencies,
  claim: Claim | undefined,
  { message: reason, waitsFor }: Extract<Intent, { kind: 'reschedule' }>,
): Promise<Outcome> {
  if (claim?.metadata.annotations?.[SELECTED_NODE] === undefined)
    return parkOrRetry(reason, waitsFor);
  return (await requestReschedule(deps, claim)) ?? { kind: 'retry', reason };
}

/** Asks the scheduler for another node by removing the selected node from a claim whose volume
 * can't be created for it (sig-storage-lib-external-provisioner controller/controller.go
 * rescheduleProvisioning).
 * @returns undefined if the claim has no selected node, or it could not be removed */
export async function requestReschedule(
  { cluster, driver, reports, settings }: Dependencies,
  claim: Claim,
): Promise<Outcome | undefined> {
  const mayReschedule =
    supportsTopology(driver.facts(), settings.options.gates) && selectedNodeOf(claim) !== '';
  if (!mayReschedule || claim.metadata.annotations?.[SELECTED_NODE] === undefined) return undefined;
  const { namespace = '', name } = claim.metadata;
  const { [SELECTED_NODE]: _, ...annotations } = claim.metadata.annotations;
  const changed = { ...claim, metadata: { ...claim.metadata, annotations } };
  try {
    await cluster.kube.update(claims, { namespace, name }, changed);
  } catch (error) {
    if (!(error instanceof KubeError)) throw error;
    reports.log.warn(
      { claim: `${namespace}/${name}`, err: error },
      'could not remove the selected node from the claim; the next run tries again',
    );
    return undefined;
  }
  return { kind: 'done', note: 'the scheduler is asked for another node', needsNode: true };
}
