const PREFIX = 'pod:';

/** The address by which Redis names the gateway in a pod. Another pod never has the same one,
 * whatever its name or IP address, so a volume whose call ended ambiguously is known to be called
 * at another gateway (record rule 7). */
export function podAddress(name: string, uid: string): string {
  return `${PREFIX}${name}/${uid}`;
}

/** UID of the pod whose gateway an address names; undefined for any other address. */
export function podUidOf(address: string): string | undefined {
  return address.startsWith(PREFIX) ? address.split('/')[1] : undefined;
}
