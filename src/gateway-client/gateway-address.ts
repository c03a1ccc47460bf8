/* How sutler names a gateway that has no fixed address. */

const POD = 'pod:';

/** Names the gateway in a pod. Another pod never has the same one, whatever its name or IP address,
 * so a call for an earlier pod never reaches a later one. */
export function podAddress(name: string, uid: string): string {
  return `${POD}${name}/${uid}`;
}

/** UID of the pod whose gateway an address names; undefined for any other address. */
export function podUidOf(address: string): string | undefined {
  return address.startsWith(POD) ? address.split('/')[1] : undefined;
}
