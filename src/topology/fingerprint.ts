import { createHash } from 'node:crypto';
import type { ClusterTopology } from './cluster-topology.ts';

/** Hashes what topology requirements are made of: the keys that the driver has registered on each
 * node, and the nodes' values of these keys. So the text changes when a parked claim may fit, and
 * not with heartbeats or other labels. It is equal in all processes that see the same nodes. */
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
  // The order of nodes does not matter.
  const texts = [registered, labelled].map((rows) => rows.map((row) => JSON.stringify(row)).sort());
  // 64 bits of a hash.
  return createHash('sha256').update(JSON.stringify(texts)).digest('hex').slice(0, 16);
}
