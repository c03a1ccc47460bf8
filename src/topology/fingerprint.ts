import { createHash } from 'node:crypto';
import type { CsiNodeView, NodeView } from './cluster-topology.ts';

/* Short texts by which parked claims recognise that nodes have changed. They are made of what a
 * topology requirement is made of and of nothing else, so no heartbeat and no other label changes
 * them. They are the same in every process that sees the same nodes. */

/** Changes with the keys that the driver has registered on any node. */
export function fingerprintCsiNodes(csiNodes: Iterable<CsiNodeView>): string {
  const lines: string[] = [];
  for (const { name, topologyKeys = [] } of csiNodes)
    if (topologyKeys.length > 0) lines.push(JSON.stringify([name, topologyKeys]));
  return digest(lines);
}

/** Changes with the values that any node has for the keys that the driver has registered. */
export function fingerprintNodes(
  nodes: Iterable<NodeView>,
  csiNodes: Iterable<CsiNodeView>,
): string {
  const keys = keysOfAnyNode(csiNodes);
  const lines: string[] = [];
  for (const { name, labels } of nodes) {
    const values = keys.map((key) => (Object.hasOwn(labels, key) ? labels[key] : null));
    if (values.some((value) => value !== null)) lines.push(JSON.stringify([name, values]));
  }
  return digest([JSON.stringify(keys), ...lines]);
}

function keysOfAnyNode(csiNodes: Iterable<CsiNodeView>): readonly string[] {
  const keys = new Set<string>();
  for (const { topologyKeys = [] } of csiNodes) for (const key of topologyKeys) keys.add(key);
  return [...keys].sort();
}

/** 64 bits of a hash of the lines, in whatever order they come. */
function digest(lines: string[]): string {
  return createHash('sha256').update(lines.sort().join('\n')).digest('hex').slice(0, 16);
}
