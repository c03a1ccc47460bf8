const PREFIX = 'node:';

/** The address by which a volume record names the gateway of a node. It stays the same when the
 * gateway's pod is replaced; node-pool.ts finds out where that gateway listens. */
export function nodeAddress(node: string): string {
  return `${PREFIX}${node}`;
}

/** The node whose gateway an address names; undefined for any other address. */
export function nodeOf(address: string): string | undefined {
  return address.startsWith(PREFIX) ? address.slice(PREFIX.length) : undefined;
}
