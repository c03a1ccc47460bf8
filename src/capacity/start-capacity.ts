import type { DriverConnections } from '../connections/open-connections.ts';
import type { DriverContext } from '../driver-config/driver-set.ts';
import { redisActiveGateway } from '../gateway-client/active-gateway.ts';
import type { gatewayClientFlags } from '../gateway-client/flags.ts';
import type { Class } from '../kube/objects.ts';
import type { retryFlags } from '../queue/flags.ts';
import { askRedis } from '../redis/ask-redis.ts';
import type { redisFlags } from '../redis/flags.ts';
import { systemClock } from '../runtime/clock.ts';
import { CapacityController } from './controller.ts';
import { type capacityFlags, type capacityIngestFlags, capacityPlace } from './flags.ts';
import { takeHints } from './hints.ts';
import { managedBy } from './objects.ts';
import { lookUpOwner } from './owner.ts';

type Context = DriverContext<
  typeof capacityFlags &
    typeof capacityIngestFlags &
    typeof retryFlags &
    typeof gatewayClientFlags &
    typeof redisFlags
>;

const STEP_MS = 500;

/** With --enable-capacity, publishes the driver's storage capacity once nodes and objects are
 * listed and their owner is found. Before that /readyz says what is missing.
 * @param o.ownNode        the only node whose capacity is published; undefined for all
 * @param o.onClassChange  calls its argument whenever a class has changed
 * @throws UsageError if a variable is not set */
export function startCapacity(
  { flags, env, closers, health, log, metrics }: Context,
  { kube, gateways, link }: DriverConnections,
  o: {
    readonly driver: string;
    readonly ownNode: string | undefined;
    readonly classes: () => Iterable<Class>;
    readonly onClassChange: (listener: () => void) => void;
    readonly isLeading: () => boolean;
  },
): void {
  const place = capacityPlace(flags, env);
  if (place === undefined) return;
  const { driver, ownNode, classes, isLeading } = o;
  const { namespace, podName } = place;
  const level = flags.capacityOwnerrefLevel;
  const inRedis = { redis: link.redis, prefix: flags.redisPrefix, driver };
  const active = redisActiveGateway(inRedis);
  const controller = new CapacityController({
    kube,
    getCapacity: (request, settings) => gateways.getCapacity(request, settings),
    gateway: async () => (await askRedis(active.read())).endpoint || gateways.soleAddress,
    classes,
    ownNode,
    takeHints: () => takeHints(inRedis),
    findOwner: async (signal) =>
      podName === undefined
        ? undefined
        : lookUpOwner(kube, { namespace, podName, level }, { signal }),
    isLeading,
    manager: { driver, managedBy: managedBy(ownNode) },
    namespace,
    includesImmediate: flags.capacityForImmediateBinding,
    pollMs: flags.capacityPollIntervalMs,
    threads: flags.capacityThreads,
    timeoutMs: flags.timeoutMs,
    backoff: { startMs: flags.retryIntervalStartMs, maxMs: flags.retryIntervalMaxMs },
    writes: { perSecond: flags.kubeApiCapacityQps, burst: flags.kubeApiCapacityBurst },
    metrics,
    clock: systemClock,
    log,
    stepMs: STEP_MS,
  });
  closers.add('capacity', () => controller.stop());
  health.ready('capacity', () => controller.trouble);
  o.onClassChange(() => controller.changed());
}
