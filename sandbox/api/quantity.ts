import { parseQuantityBytes } from '#src/kube/quantity.ts';

/** Negative, zero or positive if a is smaller than, equal to or larger than b. Texts that are not
 * quantities count as zero. */
export function compareQuantities(a: string, b: string): number {
  const difference = bytesOf(a) - bytesOf(b);
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}

function bytesOf(text: string): bigint {
  try {
    return parseQuantityBytes(text);
  } catch {
    return 0n;
  }
}
