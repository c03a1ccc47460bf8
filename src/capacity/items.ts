import type { Class } from '../kube/objects.ts';
import { type ClusterTopology, termOf } from '../topology/cluster-topology.ts';
import type { TopologyTerm } from '../topology/term.ts';

/** One value of storage capacity: how much room volumes of a class have in a segment. Each has one
 * CSIStorageCapacity object. */
export interface CapacityItem {
  readonly className: string;
  readonly segment: TopologyTerm;
}

/** A value that should be published. */
export interface WantedItem extends CapacityItem {
  /** Of the class. */
  readonly parameters: Readonly<Record<string, string>>;
}

/** For people. */
export function describeItem({ className, segment }: CapacityItem): string {
  return `class ${className} in ${describeSegment(segment)}`;
}

/** Whether to publish capacity for a class: for the driver's own classes, with immediate binding
 * only if the flag says so, because no scheduler reads it. Upstream: external-provisioner
 * pkg/capacity/capacity.go isControlledByUs and onSCAddOrUpdate. */
function hasCapacity(
  cls: Pick<Class, 'provisioner' | 'volumeBindingMode'>,
  driver: string,
  includesImmediate: boolean,
): boolean {
  return cls.provisioner === driver && (includesImmediate || cls.volumeBindingMode !== 'Immediate');
}

/** Every value that should be published. */
export function desiredItems(
  classes: Iterable<Pick<Class, 'metadata' | 'provisioner' | 'volumeBindingMode' | 'parameters'>>,
  segments: readonly TopologyTerm[],
  o: { readonly driver: string; readonly includesImmediate: boolean },
): readonly WantedItem[] {
  return [...classes]
    .filter((cls) => hasCapacity(cls, o.driver, o.includesImmediate))
    .flatMap(({ metadata: { name: className }, parameters = {} }) =>
      segments.map((segment) => ({ className, segment, parameters })),
    );
}

/** The driver's segments, each once: for every node with the driver, the values of the node's
 * labels for the driver's topology keys. A node that lacks one of these labels, for example while a
 * driver registers, has no segment. A driver without keys has one empty segment, the whole cluster.
 * Upstream: external-provisioner pkg/capacity/topology/nodes.go nodeTopology.sync. */
export function segmentsOf(
  topology: Pick<ClusterTopology, 'csiNodes' | 'node'>,
): readonly TopologyTerm[] {
  const segments = new Map<string, TopologyTerm>();
  for (const { name, topologyKeys } of topology.csiNodes()) {
    const labels = topology.node(name)?.labels;
    if (topologyKeys === undefined || labels === undefined) continue;
    const segment = termOf(labels, [...new Set(topologyKeys)]);
    if (segment !== undefined) segments.set(JSON.stringify(segment), segment);
  }
  return [...segments.values()];
}

/** For people: `zone=a,rack=7`; `the whole cluster` for the empty segment. */
export function describeSegment(segment: TopologyTerm): string {
  if (segment.length === 0) return 'the whole cluster';
  return segment.map(([key, value]) => `${key}=${value}`).join(',');
}

/** Identity of an item; equal items have equal ids. */
export function itemId({ className, segment }: CapacityItem): string {
  return JSON.stringify([className, segment]);
}
