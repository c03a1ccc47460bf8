import type { Outcome } from '../queue/outcome.ts';
import { supportsTopology } from '../volumes/driver-facts.ts';
import type { WatchedTopology } from '../topology/requirement.ts';
import type { ProcessorPorts } from './ports.ts';

type TopologyPorts = Pick<ProcessorPorts, 'driver' | 'options' | 'topology'>;

/** The nodes as the driver sees them; undefined for a driver without topology, and until they are
 * listed. */
export function topologyOf(ports: TopologyPorts): WatchedTopology | undefined {
  return hasTopology(ports) ? ports.topology() : undefined;
}

/** The outcome of a run that needs the nodes before they are listed; undefined once they are, and
 * for a driver without topology. */
export function whyNodesAreUnknown(ports: TopologyPorts): Outcome | undefined {
  return hasTopology(ports) && ports.topology() === undefined
    ? { kind: 'later', reason: 'the nodes of the cluster are not listed yet' }
    : undefined;
}

function hasTopology({ driver, options }: TopologyPorts): boolean {
  return supportsTopology(driver(), options.gates);
}
