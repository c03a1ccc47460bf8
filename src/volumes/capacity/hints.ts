import type { NodeSelectorTerm, VolumeSpec } from '../../kube/objects.ts';
import { isFields, parseJson } from '../../runtime/json.ts';
import { isTerm, type TopologyTerm, toTerm } from '../../topology/term.ts';

/** What a creation or deletion may have changed: the values of a class, in all segments, or those
 * of a segment, for all classes, since classes may share a pool. */
export type CapacityHint =
  | { readonly kind: 'class'; readonly className: string }
  | { readonly kind: 'segment'; readonly segment: TopologyTerm };

/** What changed when a volume was created or deleted: the segments that its node affinity names,
 * or its class if it has none. `complaints`: why a term names no segment. Upstream:
 * external-provisioner pkg/capacity/provision.go refreshTopology. */
export function volumeHints(spec: Pick<VolumeSpec, 'nodeAffinity' | 'storageClassName'>): {
  readonly hints: readonly CapacityHint[];
  readonly complaints: readonly string[];
} {
  const terms = spec.nodeAffinity?.required?.nodeSelectorTerms;
  if (terms === undefined)
    return { hints: [{ kind: 'class', className: spec.storageClassName ?? '' }], complaints: [] };
  const read = terms.map(segmentOfTerm);
  return {
    hints: read.flatMap((segment) =>
      typeof segment === 'string' ? [] : [{ kind: 'segment', segment }],
    ),
    complaints: read.filter((segment) => typeof segment === 'string'),
  };
}

/** The segment that a term of a node affinity names, or why it names none. Upstream:
 * external-provisioner pkg/capacity/capacity.go termToSegment. */
export function segmentOfTerm(term: NodeSelectorTerm): TopologyTerm | string {
  if ((term.matchFields ?? []).length > 0) return 'it has matchFields';
  const labels: [string, string][] = [];
  for (const { key, operator, values = [] } of term.matchExpressions ?? []) {
    if (operator !== 'In') return `${key}: the operator is ${operator}, not In`;
    const [value] = values;
    if (value === undefined || values.length > 1)
      return `${key}: it has ${values.length} values, not one`;
    labels.push([key, value]);
  }
  return toTerm(Object.fromEntries(labels));
}

/** A hint as it is stored; equal hints have equal texts. */
export function encodeHint(hint: CapacityHint): string {
  return JSON.stringify(hint.kind === 'class' ? { class: hint.className } : [hint.segment]);
}

/** @returns undefined for a text that encodeHint did not write */
export function decodeHint(text: string): CapacityHint | undefined {
  const value = parseJson(text);
  if (isFields(value)) {
    const { class: className } = value;
    return typeof className === 'string' ? { kind: 'class', className } : undefined;
  }
  const segment: unknown = Array.isArray(value) ? value[0] : undefined;
  return isTerm(segment) ? { kind: 'segment', segment } : undefined;
}
