const BASE = 'external-provisioner';
/** Longest value of a label. */
const MAX_LENGTH = 63;
/** A hash as text, with the dash before it. */
const HASH_LENGTH = 9;

/** Value of the label that names whose object a CSIStorageCapacity is: upstream's, so that a
 * cluster can change over and back.
 * @param node  of a provisioner that serves one node only */
export function managedBy(node?: string): string {
  return node === undefined ? BASE : limitedName(BASE, node);
}

/** Joins two names to at most 63 characters. A longer one keeps the suffix if that leaves room for
 * some of the base, and has a hash of what was cut off. Upstream: external-provisioner
 * pkg/owner (cmd/csi-provisioner/util.go GetNameWithMaxLength). */
export function limitedName(base: string, suffix: string): string {
  const whole = base === '' ? suffix : `${base}-${suffix}`;
  if (whole.length <= MAX_LENGTH) return whole;
  const baseLength = MAX_LENGTH - HASH_LENGTH - 1 - suffix.length;
  if (baseLength > 0) return `${base.slice(0, baseLength)}-${hashText(base)}-${suffix}`;
  const hash = hashText(whole);
  const kept = base.slice(0, MAX_LENGTH - HASH_LENGTH);
  return kept === '' ? hash : `${kept}-${hash}`;
}

/** 32-bit FNV-1a of the text's bytes, as hex digits. */
function hashText(text: string): string {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(text)) hash = Math.imul(hash ^ byte, 0x01000193);
  return (hash >>> 0).toString(16);
}
