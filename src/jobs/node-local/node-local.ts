import type { NodeGatewayPool } from '../../gateway-client/node-pool.ts';
import type { ReservedRoom } from '../../records/reserved-room.ts';
import type { CapacityReadings } from './capacity-readings.ts';

/** What the processors need besides with --node-deployment. */
export interface NodeLocal {
  readonly gateways: Pick<NodeGatewayPool, 'isReady' | 'readyNodes'>;
  readonly room: ReservedRoom;
  readonly readings: CapacityReadings;
  /** Whether sutler chooses the node of a claim that may be bound at once
   * (--node-deployment-immediate-binding). */
  readonly choosesNodes: boolean;
  /** Uniform in [0, 1). */
  readonly random: () => number;
}
