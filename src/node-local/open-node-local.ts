import type { NodeGatewayPool } from '../gateway-client/node-pool.ts';
import type { DriverConnections } from '../connections/open-connections.ts';
import { systemClock } from '../runtime/clock.ts';
import { CapacityReadings } from './capacity-readings.ts';
import { redisReservedCapacity, type ReservedCapacity } from './reserved-capacity.ts';

/** What the processors need besides with --node-deployment. */
export interface NodeLocal {
  readonly gateways: Pick<NodeGatewayPool, 'isReady' | 'readyNodes'>;
  readonly room: ReservedCapacity;
  readonly readings: CapacityReadings;
  /** Whether sutler chooses the node of a claim that may be bound at once
   * (--node-deployment-immediate-binding). */
  readonly choosesNodes: boolean;
  /** Uniform in [0, 1). */
  readonly random: () => number;
}

/** What --node-deployment adds to the processors; undefined without it. */
export function openNodeLocal(
  { nodeGateways, gateways, link }: Pick<DriverConnections, 'nodeGateways' | 'gateways' | 'link'>,
  o: {
    readonly driver: string;
    readonly prefix: string;
    /** How long a volume keeps its room: until its creation was tried again after the longest
     * delay. */
    readonly keepMs: number;
    readonly timeoutMs: number;
    /** Value of --node-deployment-immediate-binding. */
    readonly choosesNodes: boolean;
  },
): NodeLocal | undefined {
  if (nodeGateways === undefined) return undefined;
  const { prefix, driver, timeoutMs, choosesNodes } = o;
  return {
    gateways: nodeGateways,
    room: redisReservedCapacity(link.redis, { prefix, driver }, o.keepMs),
    readings: new CapacityReadings({ csi: gateways.calls, timeoutMs, clock: systemClock }),
    choosesNodes,
    random: Math.random,
  };
}
