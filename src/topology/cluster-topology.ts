import type { Labels } from '../kube/objects.ts';
import { RefusedError } from '../rules/rule.ts';
import { compareTexts, sortLabels, sortTerms, type TopologyTerm } from './term.ts';

/** A CSINode as one driver sees it. */
export interface CsiNodeView {
  readonly name: string;
  /** The keys that the driver registered on the node, possibly none; undefined if the driver is not
   * registered there. */
  readonly topologyKeys: readonly string[] | undefined;
}

/** A Node: its name and its labels. */
export interface NodeView {
  readonly name: string;
  readonly labels: Labels;
}

/** The cluster's nodes as one driver sees them, held in memory. */
export interface ClusterTopology {
  /** Undefined: there is no such CSINode. */
  csiNode(name: string): CsiNodeView | undefined;
  /** Undefined: there is no such Node. */
  node(name: string): NodeView | undefined;
  csiNodes(): Iterable<CsiNodeView>;
  nodes(): Iterable<NodeView>;
  /** Results that rules have computed from all nodes; empty again after each change of a node. */
  readonly computed: ComputedTopology;
}

/** Results that need all nodes, kept for the next claim. */
export interface ComputedTopology {
  fingerprint?: string;
  registeredKeys?: readonly string[];
  /** Sorted terms of the nodes, by their keys as JSON. */
  readonly terms: Map<string, readonly TopologyTerm[]>;
}

/** The values that labels have for all keys, as a term; undefined if a key is missing. */
export function termOf(labels: Labels, keys: readonly string[]): TopologyTerm | undefined {
  const term: (readonly [string, string])[] = [];
  for (const key of keys) {
    // A key such as "constructor" is not a label of an object that lacks it.
    const value = Object.hasOwn(labels, key) ? labels[key] : undefined;
    if (value === undefined) return undefined;
    term.push([key, value]);
  }
  return sortLabels(term);
}

/** The distinct terms of all nodes that have all keys as labels, sorted. Includes nodes on which
 * the driver does not run. Upstream: external-provisioner pkg/controller/topology.go
 * aggregateTopologies.
 * @throws RefusedError for a key that no label can have */
export function clusterTerms(
  topology: Pick<ClusterTopology, 'nodes' | 'computed'>,
  keys: readonly string[],
): readonly TopologyTerm[] {
  const invalid = keys.find((key) => !isLabelKey(key));
  if (invalid !== undefined)
    throw new RefusedError(
      `error parsing topology keys selector: ${JSON.stringify(invalid)} is no valid key of a label`,
    );
  const id = JSON.stringify(keys);
  const known = topology.computed.terms.get(id);
  if (known !== undefined) return known;
  const terms: TopologyTerm[] = [];
  for (const { labels } of topology.nodes()) {
    const term = termOf(labels, keys);
    if (term !== undefined) terms.push(term);
  }
  const sorted = sortTerms(terms);
  topology.computed.terms.set(id, sorted);
  return sorted;
}

const KEY_NAME = /^[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?$/;
const DNS_NAME = /^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*$/;

/** Whether a label may have this key: a name, perhaps after a DNS name and a slash. */
function isLabelKey(key: string): boolean {
  const slash = key.indexOf('/');
  if (!KEY_NAME.test(key.slice(slash + 1))) return false;
  return slash === -1 || (slash <= 253 && DNS_NAME.test(key.slice(0, slash)));
}

/** The keys that the driver has registered, for a claim without a selected node. During an upgrade
 * of the driver nodes may differ: then the keys that most nodes have registered, if one node has
 * labels for all of them. Empty if none is registered. Upstream takes the keys of a random node. */
export function registeredKeys(
  topology: Pick<ClusterTopology, 'csiNodes' | 'nodes' | 'computed'>,
): readonly string[] {
  return (topology.computed.registeredKeys ??= chooseKeys(topology));
}

function chooseKeys(topology: Pick<ClusterTopology, 'csiNodes' | 'nodes'>): readonly string[] {
  const lists = listsOfKeys(topology);
  const onNode = lists.length > 1 ? lists.find((keys) => isOnNode(topology, keys)) : undefined;
  return onNode ?? lists[0] ?? [];
}

/** The distinct lists of keys that nodes have registered, the most frequent first. */
function listsOfKeys(topology: Pick<ClusterTopology, 'csiNodes'>): readonly (readonly string[])[] {
  const counts = new Map<string, { readonly keys: readonly string[]; count: number }>();
  for (const { topologyKeys: keys = [] } of topology.csiNodes()) {
    if (keys.length === 0) continue;
    const id = JSON.stringify(keys);
    const known = counts.get(id);
    if (known === undefined) counts.set(id, { keys, count: 1 });
    else known.count += 1;
  }
  return [...counts]
    .sort(([a, { count: countA }], [b, { count: countB }]) => countB - countA || compareTexts(a, b))
    .map(([, { keys }]) => keys);
}

function isOnNode(topology: Pick<ClusterTopology, 'nodes'>, keys: readonly string[]): boolean {
  for (const { labels } of topology.nodes()) if (termOf(labels, keys) !== undefined) return true;
  return false;
}
