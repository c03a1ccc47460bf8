/** Which of `count` terms comes first for a claim without a selected node. The claims of one member
 * of a StatefulSet get the same one, and its members take turns. Upstream: external-provisioner
 * pkg/controller/topology.go getPVCNameHashAndIndexOffset.
 * @param count at least 1 */
export function firstTermFor(claimName: string, count: number): number {
  const { text, index } = splitName(claimName);
  return ((hashName(text) + index) >>> 0) % count;
}

/** A claim of a StatefulSet is named CLAIM-SET-INDEX: the text is SET, or whatever follows the last
 * dash before the index. */
function splitName(name: string): { readonly text: string; readonly index: number } {
  const dash = name.lastIndexOf('-');
  const ordinal = name.slice(dash + 1);
  if (dash === -1 || !/^\d+$/.test(ordinal) || Number(ordinal) > 0xffff_ffff)
    return { text: name, index: 0 };
  const before = name.slice(0, dash);
  return { text: before.slice(before.lastIndexOf('-') + 1), index: Number(ordinal) };
}

/** The 32-bit FNV-1 hash of a text's bytes. */
export function hashName(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(text)) hash = Math.imul(hash, 0x01000193) ^ byte;
  return hash >>> 0;
}
