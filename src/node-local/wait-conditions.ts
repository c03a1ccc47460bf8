import { createHash } from 'node:crypto';
import type { WaitCondition } from '../rules/rule.ts';

/* Wait conditions that name no object of the API server, with --node-deployment. ingest tells their
 * versions to the wait watch (src/ingest/dependencies/node-local-versions.ts). */

/** The gateways of nodes in wait conditions: by the name of the node, or ANY. */
const NODE_GATEWAYS = 'nodegateways';
/** The room on nodes in wait conditions; its only name is ANY. */
const ROOM = 'room';
/** The name that stands for all nodes. */
export const ANY = '*';

/** Until the gateway of a node can be called. */
export function untilGatewayIsReady(node: string): WaitCondition {
  return { resource: NODE_GATEWAYS, name: node, seen: gatewayVersion(false) };
}

/** Until a gateway of some node comes or goes.
 * @param readyNodes as they are now */
export function untilGatewaysChange(readyNodes: readonly string[]): WaitCondition {
  return { resource: NODE_GATEWAYS, name: ANY, seen: gatewaysVersion(readyNodes) };
}

/** Until there may be more room.
 * @param version of ReservationView */
export function untilRoomGrows(version: string): WaitCondition {
  return { resource: ROOM, name: ANY, seen: version };
}

/** The version of the gateway of one node. */
function gatewayVersion(isReady: boolean): string {
  return isReady ? 'ready' : '';
}

/** The version of the gateways of all nodes.
 * @param readyNodes in any order */
function gatewaysVersion(readyNodes: readonly string[]): string {
  return createHash('sha1').update(readyNodes.toSorted().join('\n')).digest('hex');
}
