/* How sutler names a gateway that has no fixed address. */

const NODE = 'node:';
const POD = 'pod:';

/** Names the gateway of a node, and stays the same when the gateway's pod is replaced; node-pool.ts
 * finds out where that gateway listens. */
export function nodeAddress(node: string): string {
  return `${NODE}${node}`;
}

/** The node whose gateway an address names; undefined for any other address. */
export function nodeOf(address: string): string | undefined {
  return address.startsWith(NODE) ? address.slice(NODE.length) : undefined;
}

/** Names the gateway in a pod. Another pod never has the same one, whatever its name or IP address,
 * so a call for an earlier pod never reaches a later one. */
export function podAddress(name: string, uid: string): string {
  return `${POD}${name}/${uid}`;
}

/** UID of the pod whose gateway an address names; undefined for any other address. */
export function podUidOf(address: string): string | undefined {
  return address.startsWith(POD) ? address.split('/')[1] : undefined;
}
