import { redisActiveGateway } from '../records/active-gateway.ts';
import { ownershipMs } from '../records/flags.ts';
import { systemClock } from '../runtime/clock.ts';
import type { DriverDeps } from './driver-deps.ts';
import { GatewayFailover } from './gateway-failover.ts';

/** Names the active gateway, at once when asked to check. A driver that runs on each node has
 * none. */
export function openFailover(base: DriverDeps): Pick<GatewayFailover, 'checkNow'> {
  if (base.connections.nodeGateways === undefined) return openGatewayFailover(base);
  return { checkNow: () => void removeActiveGateway(base) };
}

function openGatewayFailover(base: DriverDeps): GatewayFailover {
  const { context, connections, driver, queue } = base;
  const { flags, closers, health, log, metrics } = context;
  const failover = new GatewayFailover({
    pool: connections.gateways,
    active: redisActiveGateway(connections.link.redis, flags.redisPrefix, driver.name),
    driver: driver.name,
    timeoutMs: flags.timeoutMs,
    ownershipMs: ownershipMs(flags),
    isLeading: () => queue.isAllowing,
    clock: systemClock,
    log,
    metrics,
  });
  closers.add('gateway failover', () => failover.close());
  health.ready('active-gateway', () => failover.trouble);
  return failover;
}

/** Removes the name of the active gateway that a leader without --node-deployment has named. */
async function removeActiveGateway(base: DriverDeps): Promise<void> {
  const { context, connections, driver } = base;
  const { flags, log } = context;
  const active = redisActiveGateway(connections.link.redis, flags.redisPrefix, driver.name);
  try {
    const gateway = await active.clear(ownershipMs(flags));
    if (gateway !== undefined)
      log.warn({ gateway }, 'no gateway is the active one any more: every node has its own');
  } catch (error) {
    log.debug({ err: error }, 'could not remove the name of the active gateway; trying again');
    setTimeout(() => void removeActiveGateway(base), 1_000).unref();
  }
}
