/** Labels with one value for each key, sorted by key. The nodes that have all of them are a
 * segment; without labels it is the whole cluster. */
export type TopologyTerm = readonly Label[];

type Label = readonly [key: string, value: string];

/** @returns the segments of a CSI topology, or labels, as a term */
export function toTerm(segments: Readonly<Record<string, string>>): TopologyTerm {
  return sortLabels(Object.entries(segments));
}

/** @returns the term as the segments of a CSI topology; the last of two values of a key */
export function toSegments(term: TopologyTerm): Record<string, string> {
  return Object.fromEntries(term);
}

/** Sorts by key, then by value. Upstream: external-provisioner pkg/controller/topology.go
 * topologyTerm.sort. */
export function sortLabels(labels: TopologyTerm): TopologyTerm {
  return labels.length < 2 ? labels : labels.toSorted(compareLabels);
}

/** The order of terms: fewer labels first, then by the first label that differs. Upstream:
 * topologyTerm.compare. */
export function compareTerms(a: TopologyTerm, b: TopologyTerm): number {
  if (a.length !== b.length) return a.length - b.length;
  const texts = a.flat();
  const others = b.flat();
  const at = texts.findIndex((text, i) => text !== others[i]);
  return at === -1 ? 0 : compareTexts(String(texts[at]), String(others[at]));
}

/** Sorts terms and drops those that are equal to another one. */
export function sortTerms(terms: readonly TopologyTerm[]): readonly TopologyTerm[] {
  const distinct = new Map(terms.map((term) => [JSON.stringify(term), term]));
  return [...distinct.values()].sort(compareTerms);
}

/** Whether all labels of the first term are in the second. Upstream: topologyTerm.subset. */
export function isSubset(term: TopologyTerm, of: TopologyTerm): boolean {
  let found = 0;
  for (const [key, value] of of) {
    const next = term[found];
    if (next === undefined) return true;
    if (next[0] !== key) continue;
    if (next[1] !== value) return false;
    found += 1;
  }
  return found === term.length;
}

/** A term in messages: `[{zone a} {rack 1}]`. */
export function describeTerm(term: TopologyTerm): string {
  return `[${term.map(([key, value]) => `{${key} ${value}}`).join(' ')}]`;
}

/** Terms in messages: `[[{zone a}] [{zone b}]]`. */
export function describeTerms(terms: readonly TopologyTerm[]): string {
  return `[${terms.map(describeTerm).join(' ')}]`;
}

/** Labels in messages: `map[rack:1 zone:a]`. */
export function describeLabels(labels: Readonly<Record<string, string>>): string {
  return `map[${toTerm(labels)
    .map(([key, value]) => `${key}:${value}`)
    .join(' ')}]`;
}

function compareLabels(a: Label, b: Label): number {
  return compareTexts(a[0], b[0]) || compareTexts(a[1], b[1]);
}

/** Orders texts by their bytes, as Go does. */
export function compareTexts(a: string, b: string): number {
  return a === b ? 0 : Buffer.compare(Buffer.from(a), Buffer.from(b));
}
