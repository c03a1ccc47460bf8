import { nodeAddress } from '../../gateway-client/node-address.ts';
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
import type { Intent } from './intent.ts';
import type { ProcessorPorts } from '../ports.ts';
import { topologyOf, whyNodesAreUnknown } from '../driver-topology.ts';
import { chooseNode } from '../../node-local/choose-node.ts';
import type { NodeLocal } from '../../node-local/open-node-local.ts';

/** A claim that this driver has to provision, and its class. */
export interface LocalClaim {
  readonly claim: Claim;
  readonly cls: Class;
}

/** How the volume of a claim is planned, and by what. */
export type PlanClaim = (claim: Claim, ports: ProcessorPorts) => Promise<Intent>;

type Wait = Extract<Intent, { readonly kind: 'wait' }>;

/** Decides what to do with a claim of a driver that runs on each node: creates its volume on its
 * selected node, or chooses the node of a claim that has none and may be bound at once. Upstream:
 * external-provisioner pkg/controller/controller.go checkNode.
 * @throws KubeError, RecordsUnavailable */
export async function planOnNode(
  ports: ProcessorPorts,
  local: NodeLocal,
  found: LocalClaim,
  plan: PlanClaim,
): Promise<Intent> {
  const { claim, cls } = found;
  const selected = selectedNodeOf(claim);
  if (selected !== '')
    return whyNotThere(ports, local, selected) ?? planFor(ports, claim, selected, plan);
  if (cls.volumeBindingMode !== 'Immediate' || !local.choosesNodes)
    return { kind: 'none', reason: 'no node is selected for the claim yet' };
  // Its request names the node. The run only finishes what is open.
  if (await ports.records.isOpen(claim.metadata.uid))
    return wait({ kind: 'later', reason: 'the volume record of the claim is open' });
  return chooseAndPlan(ports, local, found, plan);
}

/** Leaves a claim alone whose node has no gateway: it may be another provisioner's. If the node is
 * gone, planning gives the claim back.
 * @returns undefined if the claim is to be planned */
function whyNotThere(
  ports: ProcessorPorts,
  { gateways }: NodeLocal,
  node: string,
): Wait | undefined {
  if (gateways.isReady(node)) return undefined;
  const topology = topologyOf(ports);
  if (topology !== undefined && topology.csiNode(node) === undefined) return undefined;
  const reason = `no gateway is ready on node ${node}, which is selected for the claim`;
  const until: WaitCondition[] = [untilGatewayIsReady(node)];
  if (topology !== undefined)
    until.push({ resource: csiNodes.plural, name: ANY, seen: topology.versionOf('csinodes') });
  return wait({ kind: 'parked', reason, until });
}

/** Plans as a provisioner would that runs on the node. */
function planFor(
  ports: ProcessorPorts,
  claim: Claim,
  node: string,
  plan: PlanClaim,
): Promise<Intent> {
  const { options } = ports;
  const topology = topologyOf(ports);
  return plan(claim, {
    ...ports,
    topology: () => topology && onlyNode(topology, node),
    options: { ...options, identity: `${options.identity}-${node}` },
    endpoint: nodeAddress(node),
  });
}

async function chooseAndPlan(
  ports: ProcessorPorts,
  local: NodeLocal,
  { claim, cls }: LocalClaim,
  plan: PlanClaim,
): Promise<Intent> {
  const unknown = whyNodesAreUnknown(ports);
  if (unknown !== undefined) return wait(unknown);
  const topology = topologyOf(ports);
  const readyNodes = local.gateways.readyNodes();
  const nodes = eligibleNodes({ cls, readyNodes, topology });
  const [any] = nodes;
  if (any === undefined) return noNode(readyNodes);
  // Also checks the claim, before any node is asked. Nothing but the topology differs by node.
  const example = await planFor(ports, withSelectedNode(claim, any.name), any.name, plan);
  if (example.kind !== 'create') return example;
  const choice = await chooseNode(local, {
    claimUid: claim.metadata.uid,
    className: cls.metadata.name,
    request: example.planned.request,
    nodes,
    hasCapacity: ports.driver().controllerCapabilities.has('GET_CAPACITY'),
  });
  switch (choice.kind) {
    case 'node':
      return selectAndPlan(ports, local, { claim, node: choice.name }, plan);
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
  ports: ProcessorPorts,
  { room }: NodeLocal,
  { claim, node }: { readonly claim: Claim; readonly node: string },
  plan: PlanClaim,
): Promise<Intent> {
  const { namespace = '', name, uid, resourceVersion } = claim.metadata;
  let isPlanned = false;
  try {
    const body = { metadata: { uid, resourceVersion, annotations: { [SELECTED_NODE]: node } } };
    const ref = { namespace, name };
    const selected = await ports.kube.patch<Claim>(claims, ref, { type: 'merge', body });
    ports.log.debug({ claim: `${namespace}/${name}`, node }, 'node selected for the claim');
    const intent = await planFor(ports, selected, node, plan);
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
