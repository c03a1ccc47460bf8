import { ownershipMs } from '../../records/flags.ts';
import { redisReservedRoom } from '../../records/reserved-room.ts';
import { systemClock } from '../../runtime/clock.ts';
import type { Base } from '../base.ts';
import { CapacityReadings } from './capacity-readings.ts';
import type { NodeLocal } from './node-local.ts';

/** What --node-deployment adds to the processors; undefined without it. */
export function openNodeLocal({
  context: { flags },
  connections: { nodeGateways, gateways, link },
  driver: { name: driver },
}: Base): NodeLocal | undefined {
  if (nodeGateways === undefined) return undefined;
  const { redisPrefix: prefix, timeoutMs } = flags;
  // A volume whose creation is tried again after the longest delay keeps its room.
  const ttlMs = ownershipMs(flags) + 2 * flags.retryIntervalMaxMs;
  return {
    gateways: nodeGateways,
    room: redisReservedRoom(link.redis, { prefix, driver }, ttlMs),
    readings: new CapacityReadings({ csi: gateways.calls, timeoutMs, clock: systemClock }),
    choosesNodes: flags.nodeDeploymentImmediateBinding,
    random: Math.random,
  };
}
