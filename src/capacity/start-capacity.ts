import type { DriverConnections } from '../connections/open-connections.ts';
import type { DriverContext } from '../driver-config/driver-set.ts';
import { redisActiveGateway } from '../gateway-client/active-gateway.ts';
import type { gatewayClientFlags } from '../gateway-client/flags.ts';
import type { KubeClient } from '../kube/client.ts';
import type { Class, OwnerReference } from '../kube/objects.ts';
import type { retryFlags } from '../queue/flags.ts';
import { askRedis } from '../redis/ask-redis.ts';
import type { redisFlags } from '../redis/flags.ts';
import { systemClock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import { startNodeWatch } from '../topology/node-watch.ts';
import { CapacityController } from './controller.ts';
import {
  type capacityFlags,
  type capacityIngestFlags,
  type CapacityPlace,
  capacityPlace,
} from './flags.ts';
import { takeHints } from './hints.ts';
import { capacityMetrics } from './metrics.ts';
import { ObjectStore } from './object-store.ts';
import { managedBy } from './objects.ts';
import { lookUpOwner } from './owner.ts';

type Context = DriverContext<
  typeof capacityFlags &
    typeof capacityIngestFlags &
    typeof retryFlags &
    typeof gatewayClientFlags &
    typeof redisFlags
>;

/** Begins to publish the driver's storage capacity, with --enable-capacity, as soon as nodes and
 * objects are listed and their owner is found; until then /readyz says what is missing.
 * @param o.ownNode        the only node whose capacity is published; undefined for all
 * @param o.onClassChange  calls its argument whenever a class has changed
 * @throws UsageError where a variable is not set */
export function startCapacity(
  context: Context,
  { kube, gateways, link }: DriverConnections,
  o: {
    readonly driver: string;
    readonly ownNode: string | undefined;
    readonly classes: () => Iterable<Class>;
    readonly onClassChange: (listener: () => void) => void;
    readonly isLeading: () => boolean;
  },
): void {
  const { flags, env, closers, health, log, metrics, stopping } = context;
  const place = capacityPlace(flags, env);
  if (place === undefined) return;
  const { driver, ownNode, classes, isLeading } = o;
  const manager = { driver, managedBy: managedBy(ownNode) };
  const inRedis = { redis: link.redis, prefix: flags.redisPrefix, driver };
  const active = redisActiveGateway(inRedis);
  let controller: CapacityController | undefined;
  const onChange = (): void => controller?.changed();
  const nodes = startNodeWatch({ client: kube, driver, ownNode, log, metrics, onChange });
  const objects = new ObjectStore({
    client: kube,
    namespace: place.namespace,
    manager,
    onChange: (change) => controller?.objectChanged(change),
    clock: systemClock,
    log,
    metrics,
  });
  closers.add('capacity', async () => {
    await controller?.stop();
    await Promise.all([objects.stop(), nodes.stop()]);
  });
  let ownerTrouble: string | undefined = 'looking up the owner of this pod';
  health.ready('capacity', () => ownerTrouble ?? nodes.trouble ?? objects.trouble);
  const begin = async (): Promise<void> => {
    const owner = await findOwner(context, kube, place, (trouble) => (ownerTrouble = trouble));
    await objects.open();
    await nodes.waitForSync(stopping).catch(() => undefined);
    if (stopping.aborted) return;
    controller = new CapacityController({
      kube,
      getCapacity: (request, settings) => gateways.getCapacity(request, settings),
      gateway: async () => (await askRedis(active.read())).endpoint || gateways.soleAddress,
      classes,
      nodes,
      objects,
      takeHints: () => takeHints(inRedis),
      isLeading,
      manager,
      namespace: place.namespace,
      owner,
      includesImmediate: flags.capacityForImmediateBinding,
      pollMs: flags.capacityPollIntervalMs,
      threads: flags.capacityThreads,
      timeoutMs: flags.timeoutMs,
      backoff: { startMs: flags.retryIntervalStartMs, maxMs: flags.retryIntervalMaxMs },
      writes: { perSecond: flags.kubeApiCapacityQps, burst: flags.kubeApiCapacityBurst },
      metrics: capacityMetrics(metrics, driver),
      clock: systemClock,
      log,
    });
  };
  o.onClassChange(onChange);
  void begin();
}

const OWNER_PAUSE_MS = 2_000;

/** Looks the owner up until it is found, or the process stops.
 * @param onTrouble  called with why it is not found yet, and with undefined when it is */
async function findOwner(
  { flags, log, stopping }: Context,
  kube: KubeClient,
  { namespace, podName }: CapacityPlace,
  onTrouble: (trouble: string | undefined) => void,
): Promise<OwnerReference | undefined> {
  let last = '';
  if (podName === undefined) {
    onTrouble(undefined);
    return undefined;
  }
  while (!stopping.aborted) {
    try {
      const owner = await lookUpOwner(kube, {
        namespace,
        podName,
        level: flags.capacityOwnerrefLevel,
      });
      onTrouble(undefined);
      return owner;
    } catch (error) {
      const trouble = `look up owner(s) of pod: ${messageOf(error)}`;
      if (trouble !== last) log.warn({ reason: trouble }, 'no capacity is published yet');
      last = trouble;
      onTrouble(trouble);
      await systemClock.sleep(OWNER_PAUSE_MS, stopping);
    }
  }
  return undefined;
}
