import type { TopologySelectorTerm } from '../kube/objects.ts';
import { RefusedError } from '../rules/refused-error.ts';
import { sortLabels, type TopologyTerm } from './term.ts';

/** More would not fit into a call to the driver. */
const MAX_TERMS = 10_000;

/** The terms that a class allows: one for each combination of the values of its expressions. An
 * expression without values drops those before it. Upstream: external-provisioner
 * pkg/controller/topology.go flatten.
 * @throws RefusedError for more than 10,000 combinations */
export function flattenAllowed(
  allowedTopologies: readonly TopologySelectorTerm[],
): readonly TopologyTerm[] {
  const terms: TopologyTerm[] = [];
  for (const term of allowedTopologies) {
    for (const combination of combinationsOf(term)) terms.push(sortLabels(combination));
    checkCount(terms.length);
  }
  return terms;
}

function combinationsOf({ matchLabelExpressions = [] }: TopologySelectorTerm): TopologyTerm[] {
  let terms: TopologyTerm[] = [];
  for (const { key, values } of matchLabelExpressions) {
    const before: TopologyTerm[] = terms.length === 0 ? [[]] : terms;
    checkCount(before.length * values.length);
    terms = values.flatMap((value) => before.map((term): TopologyTerm => [...term, [key, value]]));
  }
  return terms;
}

function checkCount(count: number): void {
  if (count <= MAX_TERMS) return;
  throw new RefusedError(
    `the class’s allowedTopologies have more than ${MAX_TERMS} combinations of values; ` +
      'create the class with fewer keys or values',
  );
}
