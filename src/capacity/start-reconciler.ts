import type { DriverConnections } from '../connections/open-connections.ts';
import type { DriverContext } from '../driver-config/driver-set.ts';
import type { gatewayClientFlags } from '../gateway-client/flags.ts';
import type { KubeClient } from '../kube/client.ts';
import type { Class, OwnerReference } from '../kube/objects.ts';
import type { Consumer } from '../queue/consumer.ts';
import type { Run } from '../queue/run.ts';
import type { JobKey } from '../queue/contract.ts';
import type { Outcome } from '../queue/outcome.ts';
import { redisActiveGateway } from '../gateway-client/active-gateway.ts';
import { askRedis } from '../redis/ask-redis.ts';
import type { redisFlags } from '../redis/flags.ts';
import { systemClock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { capacityFlags, CapacityPlace, capacityWorkFlags } from './flags.ts';
import { ObjectStore } from './object-store.ts';
import { managedBy } from './objects.ts';
import { lookUpOwner } from './owner.ts';
import { type CapacityPorts, reconcileCapacity } from './reconcile-capacity.ts';
import { redisRequestedBytes } from './requested-bytes.ts';
import { redisReadTimes, redisWriteLimit } from './timing.ts';

type Context = DriverContext<
  typeof capacityFlags & typeof capacityWorkFlags & typeof gatewayClientFlags & typeof redisFlags
>;

interface Parts {
  readonly driver: string;
  /** The only node whose capacity is published; undefined for all. */
  readonly ownNode: string | undefined;
  readonly place: CapacityPlace;
  readonly classOf: (name: string) => Class | undefined;
  /** Starts to take jobs of the capacity queue. */
  readonly startConsumer: (
    process: (key: JobKey, run: Run) => Promise<Outcome>,
  ) => Pick<Consumer, 'trouble' | 'stuck'>;
}

/** Starts the work of the capacity queue in jobs as soon as the objects are listed and their owner
 * is found; until then says in /readyz what is missing. */
export function startReconciler(
  context: Context,
  connections: DriverConnections,
  parts: Parts,
): void {
  const { closers, health, log, metrics, stopping } = context;
  const { place, driver, ownNode } = parts;
  const manager = { driver, managedBy: managedBy(ownNode) };
  const objects = new ObjectStore({
    client: connections.kube,
    namespace: place.namespace,
    manager,
    clock: systemClock,
    log,
    metrics,
  });
  closers.add('capacity objects', () => objects.stop());
  let ownerTrouble: string | undefined = 'looking up the owner of this pod';
  let consumer: Pick<Consumer, 'trouble' | 'stuck'> | undefined;
  health.ready(
    'capacity',
    () => ownerTrouble ?? objects.trouble ?? consumer?.trouble ?? consumer?.stuck,
  );
  const begin = async (): Promise<void> => {
    const owner = await findOwner(context, connections.kube, place, (trouble) => {
      ownerTrouble = trouble;
    });
    await objects.open();
    if (stopping.aborted) return;
    const { flags } = context;
    const { redis } = connections.link;
    const ports: CapacityPorts = {
      kube: connections.kube,
      csi: connections.gateways,
      gateway: activeGateway(connections, flags.redisPrefix, driver),
      classOf: parts.classOf,
      objects,
      readTimes: redisReadTimes(redis, flags.redisPrefix, driver),
      mayWrite: redisWriteLimit(redis, {
        prefix: flags.redisPrefix,
        driver,
        perSecond: flags.kubeApiCapacityQps,
        burst: flags.kubeApiCapacityBurst,
        clock: systemClock,
      }),
      requestedBytes: flags.capacityMinusInFlight
        ? redisRequestedBytes({ redis, prefix: flags.redisPrefix, driver }, () =>
            systemClock.nowMs(),
          )
        : undefined,
      manager,
      namespace: place.namespace,
      owner,
      includesImmediate: flags.capacityForImmediateBinding,
      timeoutMs: flags.timeoutMs,
      log,
    };
    consumer = parts.startConsumer((key, run) => reconcileCapacity(ports, key, run));
  };
  void begin();
}

/** The gateway that is asked. */
function activeGateway(
  { gateways, link: { redis } }: DriverConnections,
  prefix: string,
  driver: string,
): CapacityPorts['gateway'] {
  const active = redisActiveGateway({ redis, prefix, driver });
  return async () => (await askRedis(active.read())).endpoint || gateways.soleAddress;
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
