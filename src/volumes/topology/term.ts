/** A part of the cluster: label keys with one value each, sorted by key. Empty: all of it. */
export type TopologyTerm = readonly (readonly [key: string, value: string])[];

/** @returns the segments of a CSI topology, or labels, as a term */
export function toTerm(segments: Readonly<Record<string, string>>): TopologyTerm {
  return Object.entries(segments).toSorted(([a], [b]) => compareTexts(a, b));
}

/** Orders texts by their bytes, as Go does. */
export function compareTexts(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
