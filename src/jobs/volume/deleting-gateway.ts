import { nodeAddress } from '../../gateway-client/gateway-address.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { untilGatewayIsReady, untilGatewaysChange } from '../../node-local/wait-conditions.ts';
import { chooseDeletingNode, type DeletingNode } from '../../node-local/node-rules.ts';
import { RefusedError } from '../../rules/rule.ts';
import type { VolumeRun } from '../attempt.ts';
import type { Dependencies } from '../dependencies.ts';
import { whyNodesAreUnknown } from '../outcomes.ts';
import { reportDeletionFailed } from '../report-events.ts';
import type { NodeLocal } from '../../node-local/open-node-local.ts';

/** The gateway through which a volume is deleted, or how the run ends where there is none. */
export type DeletingGateway = { readonly address: string } | { readonly outcome: Outcome };

/** Finds the gateway through which a volume is deleted: with --node-deployment, that of a node from
 * which the volume can be reached. If there is no such node any more, the user is told. A node that
 * is there without a gateway may be another provisioner's, which then deletes the volume. */
export async function findDeletingGateway(
  deps: Dependencies,
  { volume }: VolumeRun,
): Promise<DeletingGateway> {
  const { nodeLocal: local, endpoint } = deps.driver;
  if (local === undefined) return { address: endpoint };
  const unknown = whyNodesAreUnknown(deps);
  if (unknown !== undefined) return { outcome: unknown };
  const topology = deps.cluster.topology();
  const { name: driver } = deps.driver.facts();
  const { gateways } = local;
  let found: DeletingNode;
  try {
    found = chooseDeletingNode(volume, { driver, gateways, topology });
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
