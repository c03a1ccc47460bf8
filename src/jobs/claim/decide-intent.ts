import { nodeAddress } from '../../gateway-client/gateway-address.ts';
import { CLAIM_FINALIZER, SELECTED_NODE } from '../../kube/keys.ts';
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
import type { Outcome } from '../../queue/outcome.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import type { WaitCondition } from '../../rules/rule.ts';
import { onlyNode } from '../../topology/requirement.ts';
import { supportsTopology } from '../../volumes/driver-facts.ts';
import { selectedNodeOf, shouldProvision } from '../../volumes/eligibility.ts';
import { hasFinalizer, removeFinalizer } from '../../volumes/finalizer-patches.ts';
import { type PlanInput, planVolume, type VolumePlan } from '../../volumes/plan.ts';
import type { Dependencies } from '../dependencies.ts';
import {
  parkOrRetry,
  recordClaimEvent,
  reportProvisioningFailed,
  whyNodesAreUnknown,
} from '../outcomes.ts';
import { runRule } from '../read-objects.ts';
import { findNameClash } from './name-clash.ts';

/** A claim that this driver has to provision, and its class. */
type OurClaim = Pick<PlanInput, 'claim' | 'cls' | 'className'>;

/** Decides what to do with a claim: whether it is ours (src/volumes/eligibility.ts), and the
 * request for its volume (src/volumes/plan.ts). The texts of refusals come from src/volumes/, those
 * of clones from clone-source.ts there, those of restores from snapshot-source.ts.
 * @throws KubeError if the API server can't be asked */
export async function decideIntent(deps: Dependencies, claim: Claim | undefined): Promise<Intent> {
  if (claim === undefined) return { kind: 'none', reason: 'the claim is gone' };
  const { cluster, driver } = deps;
  const verdict = shouldProvision(claim, driver.facts(), cluster.classOf);
  if (verdict.kind === 'ignore') return { kind: 'none', reason: verdict.reason };
  if (verdict.kind === 'no-class') return verdict;
  const { cls, className } = verdict;
  const ours = { claim, cls, className };
  return driver.nodeLocal === undefined
    ? planClaim(deps, ours)
    : planOnNode(deps, driver.nodeLocal, ours);
}

async function planClaim(
  { cluster, driver, redis, settings: { options } }: Dependencies,
  { claim, cls, className }: OurClaim,
): Promise<Intent> {
  const facts = driver.facts();
  const topology = cluster.topology();
  const rule = planVolume({ claim, cls, className, driver: facts, options, topology });
  const plan = await runRule(cluster.kube, rule);
  if (plan.kind !== 'create') return plan;
  const clash = await findNameClash(cluster.kube, redis.names, options, claim.metadata.uid);
  if (clash !== undefined) return { kind: 'refuse', message: clash, waitsFor: [] };
  const { request, pvTemplate, secret } = plan;
  return { kind: 'create', planned: { request, pvTemplate, secret, endpoint: driver.endpoint } };
}

type Wait = Extract<Intent, { readonly kind: 'wait' }>;

/** Decides what to do with a claim of a driver that runs on each node: creates its volume on its
 * selected node, or chooses the node of a claim that has none and may be bound at once. Upstream:
 * external-provisioner pkg/controller/controller.go checkNode.
 * @throws KubeError, RecordsUnavailable */
async function planOnNode(deps: Dependencies, local: NodeLocal, ours: OurClaim): Promise<Intent> {
  const { claim, cls } = ours;
  const selected = selectedNodeOf(claim);
  if (selected !== '') return whyNotThere(deps, local, selected) ?? planFor(deps, ours, selected);
  if (cls.volumeBindingMode !== 'Immediate' || !local.choosesNodes)
    return { kind: 'none', reason: 'no node is selected for the claim yet' };
  // Its request names the node. The run only finishes what is open.
  if (await deps.redis.records.isOpen(claim.metadata.uid))
    return wait({ kind: 'later', reason: 'the volume record of the claim is open' });
  return chooseAndPlan(deps, local, ours);
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
  return planClaim(there, ours);
}

async function chooseAndPlan(
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
    return ownNode === undefined ? example : selectAndPlan(deps, local, ours, any.name);
  const choice = await chooseNode(local, {
    claimUid: claim.metadata.uid,
    className: cls.metadata.name,
    request: example.planned.request,
    nodes,
    hasCapacity: deps.driver.facts().controllerCapabilities.has('GET_CAPACITY'),
  });
  switch (choice.kind) {
    case 'node':
      return selectAndPlan(deps, local, ours, choice.name);
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

/** Writes the node to the claim, then plans. Whoever else selected a node meanwhile wins. */
async function selectAndPlan(
  deps: Dependencies,
  { room }: NodeLocal,
  ours: OurClaim,
  node: string,
): Promise<Intent> {
  const { namespace = '', name, uid } = ours.claim.metadata;
  let isPlanned = false;
  try {
    const { claim } = withSelectedNode(ours, node);
    const selected = await deps.cluster.kube.update<Claim>(claims, { namespace, name }, claim);
    deps.reports.log.debug({ claim: `${namespace}/${name}`, node }, 'node selected for the claim');
    const intent = await planFor(deps, { ...ours, claim: selected }, node);
    isPlanned = intent.kind === 'create';
    return intent.kind === 'create' ? { ...intent, claim: selected } : intent;
  } catch (error) {
    if (!isConflict(error)) throw error;
    return wait({ kind: 'later', reason: 'the claim has changed meanwhile', delayMs: 0 });
  } finally {
    if (!isPlanned) await room.release(uid);
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

/** What a run does with its claim if no record is open. */
export type Intent =
  /** Create the volume by this request. */
  | {
      readonly kind: 'create';
      readonly planned: VolumeRequest;
      /** The claim, if planning has changed it. */
      readonly claim?: Claim;
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

/** Ends the run of a claim that has no open record and for which no volume is to be created. */
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
  return (await requestReschedule(deps, claim, false)) ?? { kind: 'retry', reason };
}

/** Asks the scheduler for another node by removing the selected node from a claim whose volume
 * can't be created for it (sig-storage-lib-external-provisioner controller/controller.go
 * rescheduleProvisioning). A process that serves one node removes its finalizer in the same write:
 * afterwards one may be another process's.
 * @param isAbsent  it is proven that the claim has no volume; without proof such a process keeps a
 *   claim with the finalizer, since its node may have the volume
 * @returns undefined if the claim has no selected node, or it could not be removed */
export async function requestReschedule(
  { cluster, driver, reports, settings }: Dependencies,
  claim: Claim,
  isAbsent: boolean,
): Promise<Outcome | undefined> {
  const facts = driver.facts();
  const mayReschedule =
    supportsTopology(facts, settings.options.gates) && selectedNodeOf(claim) !== '';
  if (!mayReschedule || claim.metadata.annotations?.[SELECTED_NODE] === undefined) return undefined;
  const { namespace = '', name } = claim.metadata;
  const ofOneNode = facts.ownNode !== undefined;
  if (ofOneNode && !isAbsent && hasFinalizer(claim, CLAIM_FINALIZER)) return undefined;
  try {
    await cluster.kube.update(claims, { namespace, name }, withoutNode(claim, ofOneNode));
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

function withoutNode(claim: Claim, losesFinalizer: boolean): Claim {
  const { [SELECTED_NODE]: _, ...annotations } = claim.metadata.annotations ?? {};
  const change = losesFinalizer ? removeFinalizer(claim.metadata, CLAIM_FINALIZER) : undefined;
  const finalizers = change === undefined ? {} : { finalizers: change.list };
  return { ...claim, metadata: { ...claim.metadata, annotations, ...finalizers } };
}
