import type { Class, TopologySelectorTerm } from '../kube/objects.ts';
import { classes, csiNodes, nodes } from '../kube/resources.ts';
import { quote } from '../rules/quote.ts';
import { notFound, RefusedError, type WaitCondition } from '../rules/rule.ts';
import { clusterTerms, type ClusterTopology, registeredKeys, termOf } from './cluster-topology.ts';
import { fingerprintNodes } from './fingerprint.ts';
import {
  describeLabels,
  describeTerm,
  describeTerms,
  isSubset,
  sortLabels,
  sortTerms,
  type TopologyTerm,
  toSegments,
} from './term.ts';

/** Where a volume may be created, as CSI's TopologyRequirement: the driver has to make it
 * accessible from one of `requisite`, and tries them in the order of `preferred`. */
export interface TopologyRequirement {
  readonly requisite: Topology[];
  readonly preferred: Topology[];
}

interface Topology {
  readonly segments: Record<string, string>;
}

export interface RequirementInput {
  readonly claimName: string;
  /** Translated for the driver if it is an in-tree class. */
  readonly cls: Pick<Class, 'metadata' | 'allowedTopologies'>;
  /** '' for none. */
  readonly selectedNode: string;
  readonly topology: ClusterTopology;
  readonly strictTopology: boolean;
  readonly immediateTopology: boolean;
}

/** The selected node has no CSINode: the scheduler has to select another node. */
export class MissingCsiNodeError extends RefusedError {}

/** Decides where the volume of a claim may be created; undefined without a limit. Upstream:
 * external-provisioner pkg/controller/topology.go GenerateAccessibilityRequirements.
 * @throws MissingCsiNodeError, RefusedError */
export function topologyRequirement(input: RequirementInput): TopologyRequirement | undefined {
  const selected = input.selectedNode === '' ? undefined : selectedTerm(input);
  if (selected !== undefined && input.strictTopology) {
    checkAllowed(input, selected.term);
    return toRequirement([selected.term], 0);
  }
  const requisite = requisiteTerms(input, selected?.keys);
  if (requisite.length === 0) return undefined;
  if (selected === undefined)
    return toRequirement(requisite, firstTermFor(input.claimName, requisite.length));
  const first = requisite.findIndex((term) => isSubset(term, selected.term));
  if (first === -1)
    throw refuse(
      input,
      `topology ${describeTerm(selected.term)} from selected node ${quote(input.selectedNode)} ` +
        `is not in requisite: ${describeTerms(requisite)}`,
    );
  return toRequirement(requisite, first);
}

/** The keys that the driver registered on the selected node, and the node's values of them. */
function selectedTerm(input: RequirementInput): {
  readonly keys: readonly string[];
  readonly term: TopologyTerm;
} {
  const { selectedNode, topology } = input;
  const csiNode = topology.csiNode(selectedNode);
  if (csiNode === undefined) {
    // As upstream's cache of CSINodes spells it.
    const cause = notFound({ ...csiNodes, plural: 'csinode' }, selectedNode);
    throw new MissingCsiNodeError(`failed to get selected CSINode ${selectedNode}: ${cause}`, {
      waitsFor: waitsFor(input),
    });
  }
  const { topologyKeys: keys = [] } = csiNode;
  if (keys.length === 0) throw refuse(input, `no topology key found for node ${selectedNode}`);
  const labels = topology.node(selectedNode)?.labels ?? {};
  const term = termOf(labels, keys);
  if (term !== undefined) return { keys, term };
  throw refuse(
    input,
    `topology labels from selected node ${describeLabels(labels)} ` +
      `does not match topology keys from CSINode [${keys.join(' ')}]`,
  );
}

/** Refuses a selected node that the class does not allow. */
function checkAllowed(input: RequirementInput, selected: TopologyTerm): void {
  const { allowedTopologies = [] } = input.cls;
  if (allowedTopologies.length === 0) return;
  const allowed = flattenAllowed(allowedTopologies);
  if (allowed.some((term) => isSubset(term, selected))) return;
  throw refuse(
    input,
    `selected node '${quote(input.selectedNode)}' topology '${describeTerm(selected)}' ` +
      `is not in allowed topologies: ${describeTerms(allowed)}`,
  );
}

/** The class's terms, or the terms of all nodes, sorted; none if nothing limits the volume.
 * @param selectedKeys  the keys of the selected node, if there is one */
function requisiteTerms(
  input: RequirementInput,
  selectedKeys: readonly string[] | undefined,
): readonly TopologyTerm[] {
  const { cls, topology, immediateTopology } = input;
  const { allowedTopologies = [] } = cls;
  if (allowedTopologies.length > 0) return sortTerms(flattenAllowed(allowedTopologies));
  if (selectedKeys === undefined && !immediateTopology) return [];
  const keys = selectedKeys ?? registeredKeys(topology);
  if (keys.length === 0) throw refuse(input, 'no available topology found');
  const terms = clusterTerms(topology, keys);
  if (terms.length > 0) return terms;
  throw refuse(input, `topologyKeys [${keys.join(' ')}] were not found on any nodes`);
}

/** @param first index of the term that is preferred to all others */
function toRequirement(terms: readonly TopologyTerm[], first: number): TopologyRequirement {
  const requisite = terms.map((term) => ({ segments: toSegments(term) }));
  return { requisite, preferred: [...requisite.slice(first), ...requisite.slice(0, first)] };
}

/** The refusal of a claim until nodes, or its class, change. */
function refuse(input: RequirementInput, message: string): RefusedError {
  return new RefusedError(message, { waitsFor: waitsFor(input) });
}

function waitsFor({ topology, cls }: RequirementInput): readonly WaitCondition[] {
  const { name, resourceVersion } = cls.metadata;
  return [
    { resource: nodes.plural, name: '*', seen: fingerprintNodes(topology) },
    { resource: classes.plural, name, seen: resourceVersion },
  ];
}

/** More terms would not fit into a call to the driver. */
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

/** Chooses which of `count` terms comes first for a claim without a selected node. All claims of
 * one member of a StatefulSet get the same term, and its members take turns. Upstream:
 * external-provisioner pkg/controller/topology.go getPVCNameHashAndIndexOffset.
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
