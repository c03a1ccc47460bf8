import { nodeAddress } from '../../gateway-client/gateway-address.ts';
import { SELECTED_NODE } from '../../kube/keys.ts';
import { isConflict } from '../../kube/kube-error.ts';
import type { Claim, Class } from '../../kube/objects.ts';
import { claims, csiNodes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import {
  ANY,
  untilGatewayIsReady,
  untilGatewaysChange,
  untilRoomGrows,
} from '../../node-local/wait-conditions.ts';
import { selectedNodeOf } from '../../volumes/eligibility.ts';
import { eligibleNodes } from '../../node-local/node-rules.ts';
import type { WaitCondition } from '../../rules/rule.ts';
import { onlyNode } from '../../topology/requirement.ts';
import type { Dependencies } from '../dependencies.ts';
import { whyNodesAreUnknown } from '../outcomes.ts';
import type { Intent } from './intent.ts';
import { chooseNode } from '../../node-local/choose-node.ts';
import type { NodeLocal } from '../../node-local/open-node-local.ts';

/** A claim that this driver has to provision, and its class. */
export interface LocalClaim {
  readonly claim: Claim;
  readonly cls: Class;
}

/** How the volume of a claim is planned, and by what. */
export type PlanClaim = (claim: Claim, deps: Dependencies) => Promise<Intent>;

type Wait = Extract<Intent, { readonly kind: 'wait' }>;

/** Decides what to do with a claim of a driver that runs on each node: creates its volume on its
 * selected node, or chooses the node of a claim that has none and may be bound at once. Upstream:
 * external-provisioner pkg/controller/controller.go checkNode.
 * @throws KubeError, RecordsUnavailable */
export async function planOnNode(
  deps: Dependencies,
  local: NodeLocal,
  found: LocalClaim,
  plan: PlanClaim,
): Promise<Intent> {
  const { claim, cls } = found;
  const selected = selectedNodeOf(claim);
  if (selected !== '')
    return whyNotThere(deps, local, selected) ?? planFor(deps, claim, selected, plan);
  if (cls.volumeBindingMode !== 'Immediate' || !local.choosesNodes)
    return { kind: 'none', reason: 'no node is selected for the claim yet' };
  // Its request names the node. The run only finishes what is open.
  if (await deps.redis.records.isOpen(claim.metadata.uid))
    return wait({ kind: 'later', reason: 'the volume record of the claim is open' });
  return chooseAndPlan(deps, local, found, plan);
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
function planFor(deps: Dependencies, claim: Claim, node: string, plan: PlanClaim): Promise<Intent> {
  const { cluster, driver, settings } = deps;
  const { options } = settings;
  const topology = cluster.topology();
  const identity = `${options.identity}-${node}`;
  return plan(claim, {
    ...deps,
    cluster: { ...cluster, topology: () => topology && onlyNode(topology, node) },
    driver: { ...driver, endpoint: nodeAddress(node) },
    settings: { ...settings, options: { ...options, identity } },
  });
}

async function chooseAndPlan(
  deps: Dependencies,
  local: NodeLocal,
  { claim, cls }: LocalClaim,
  plan: PlanClaim,
): Promise<Intent> {
  const unknown = whyNodesAreUnknown(deps);
  if (unknown !== undefined) return wait(unknown);
  const topology = deps.cluster.topology();
  const readyNodes = local.gateways.readyNodes();
  const nodes = eligibleNodes({ cls, readyNodes, topology });
  const [any] = nodes;
  if (any === undefined) return noNode(readyNodes);
  // Also checks the claim, before any node is asked. Nothing but the topology differs by node.
  const example = await planFor(deps, withSelectedNode(claim, any.name), any.name, plan);
  if (example.kind !== 'create') return example;
  const choice = await chooseNode(local, {
    claimUid: claim.metadata.uid,
    className: cls.metadata.name,
    request: example.planned.request,
    nodes,
    hasCapacity: deps.driver.facts().controllerCapabilities.has('GET_CAPACITY'),
  });
  switch (choice.kind) {
    case 'node':
      return selectAndPlan(deps, local, { claim, node: choice.name }, plan);
    case 'busy':
      return wait({
        kind: 'later',
        reason: 'the room that nodes have may be needed by volumes that are being created',
      });
    case 'unreachable':
      return wait({ kind: 'later', reason: choice.reason });
    case 'full':
      return noRoom(choice, readyNodes);
  }
}

function withSelectedNode(claim: Claim, node: string): Claim {
  const { metadata } = claim;
  const annotations = { ...metadata.annotations, [SELECTED_NODE]: node };
  return { ...claim, metadata: { ...metadata, annotations } };
}

/** Writes the node to the claim, then plans. Whoever else selected a node meanwhile wins. */
async function selectAndPlan(
  deps: Dependencies,
  { room }: NodeLocal,
  { claim, node }: { readonly claim: Claim; readonly node: string },
  plan: PlanClaim,
): Promise<Intent> {
  const { namespace = '', name, uid, resourceVersion } = claim.metadata;
  let isPlanned = false;
  try {
    const body = { metadata: { uid, resourceVersion, annotations: { [SELECTED_NODE]: node } } };
    const ref = { namespace, name };
    const selected = await deps.cluster.kube.patch<Claim>(claims, ref, { type: 'merge', body });
    deps.reports.log.debug({ claim: `${namespace}/${name}`, node }, 'node selected for the claim');
    const intent = await planFor(deps, selected, node, plan);
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

function noRoom(
  { message, roomVersion }: { readonly message: string; readonly roomVersion: string },
  readyNodes: readonly string[],
): Wait {
  const until = [untilRoomGrows(roomVersion), untilGatewaysChange(readyNodes)];
  return { ...wait({ kind: 'parked', reason: message, until }), message };
}

function wait(outcome: Outcome): Wait {
  return { kind: 'wait', outcome };
}
