import type { Class } from '../kube/objects.ts';
import { classes, csiNodes, nodes } from '../kube/resources.ts';
import { quote } from '../rules/quote.ts';
import { notFound } from '../rules/rule.ts';
import { RefusedError, type WaitCondition } from '../rules/refused-error.ts';
import { flattenAllowed } from './allowed-topologies.ts';
import { clusterTerms, registeredKeys, termOf } from './cluster-terms.ts';
import type { ClusterTopology } from './cluster-topology.ts';
import { firstTermFor } from './spreading.ts';
import {
  describeLabels,
  describeTerm,
  describeTerms,
  isSubset,
  sortTerms,
  type TopologyTerm,
  toSegments,
} from './term.ts';

/** Where a volume may be created: the driver has to make it accessible from one of `requisite`, and
 * tries them in the order of `preferred`. As CSI's TopologyRequirement. */
export interface TopologyRequirement {
  readonly requisite: Topology[];
  readonly preferred: Topology[];
}

interface Topology {
  readonly segments: Record<string, string>;
}

/** The nodes, and versions of them by which a claim can wait for a change. */
export interface WatchedTopology extends ClusterTopology {
  /** Changes with whatever of the Nodes, or of the CSINodes, may change a requirement. */
  versionOf(resource: 'nodes' | 'csinodes'): string;
}

export interface RequirementInput {
  readonly claimName: string;
  /** Translated for the driver if it is an in-tree class. */
  readonly cls: Pick<Class, 'metadata' | 'allowedTopologies'>;
  /** '' for none. */
  readonly selectedNode: string;
  readonly topology: WatchedTopology;
  readonly strictTopology: boolean;
  readonly immediateTopology: boolean;
}

/** Thrown for a selected node without a CSINode: the scheduler has to select another one. */
export class MissingCsiNodeError extends RefusedError {}

/** Where the volume of a claim may be created; undefined where nothing limits it. Upstream:
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

/** The class's terms, or those of all nodes, sorted; none where nothing limits the volume.
 * @param selectedKeys those of the selected node, if there is one */
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
    { resource: nodes.plural, name: '*', seen: topology.versionOf('nodes') },
    { resource: csiNodes.plural, name: '*', seen: topology.versionOf('csinodes') },
    { resource: classes.plural, name, seen: resourceVersion },
  ];
}
