import { createHash } from 'node:crypto';
import type { ClusterTopology } from './cluster-topology.ts';

/** A short text by which parked claims recognise that nodes have changed: it changes with the keys
 * that the driver has registered on any node, and with the values that any node has for them. It is
 * made of what a topology requirement is made of and of nothing else, so no heartbeat and no other
 * label changes it. It is the same in every process that sees the same nodes. */
export function fingerprintNodes(topology: ClusterTopology): string {
  return (topology.computed.fingerprint ??= computeFingerprint(topology));
}

function computeFingerprint(topology: ClusterTopology): string {
  const registered: (readonly [string, readonly string[]])[] = [];
  for (const { name, topologyKeys = [] } of topology.csiNodes())
    if (topologyKeys.length > 0) registered.push([name, topologyKeys]);
  const keys = [...new Set(registered.flatMap(([, each]) => each))].sort();
  const labelled: (readonly [string, readonly (string | null | undefined)[]])[] = [];
  for (const { name, labels } of topology.nodes()) {
    const values = keys.map((key) => (Object.hasOwn(labels, key) ? labels[key] : null));
    if (values.some((value) => value !== null)) labelled.push([name, values]);
  }
  // Nodes come in any order.
  const texts = [registered, labelled].map((rows) => rows.map((row) => JSON.stringify(row)).sort());
  // 64 bits of a hash.
  return createHash('sha256').update(JSON.stringify(texts)).digest('hex').slice(0, 16);
}
