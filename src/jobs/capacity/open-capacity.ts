import { capacityNamespace } from '../../capacity/environment.ts';
import { redisHintStore } from '../../capacity/hint-store.ts';
import { ObjectStore } from '../../capacity/object-store.ts';
import { redisReadTimes } from '../../capacity/read-times.ts';
import { redisRequestedBytes } from '../../capacity/requested-bytes.ts';
import { redisWriteLimit } from '../../capacity/write-limit.ts';
import { nodeAddress } from '../../gateway-client/node-address.ts';
import type { KubeClient } from '../../kube/client.ts';
import type { OwnerReference } from '../../kube/objects.ts';
import { redisActiveGateway } from '../../records/active-gateway.ts';
import { askRedis } from '../../records/ask-redis.ts';
import { systemClock } from '../../runtime/clock.ts';
import { messageOf } from '../../runtime/error-message.ts';
import { UsageError } from '../../runtime/flags.ts';
import { managedBy } from '../../volumes/capacity/managed-by.ts';
import { chooseNodeOfSegment } from '../../volumes/node-local/node-of-volume.ts';
import type { Base, Context } from '../base.ts';
import type { DriverCaches } from '../caches.ts';
import type { StartConsumer } from '../open-consumers.ts';
import { lookUpOwner } from './owner.ts';
import { type CapacityPorts, reconcileCapacity } from './reconcile-capacity.ts';
import { type CapacityHints, createCapacityHints, NO_CAPACITY_HINTS } from './report-hints.ts';

/** Where the objects are written, and whose they are. */
export interface CapacityPlace {
  readonly namespace: string;
  /** The pod of this process; undefined where the objects have no owner. */
  readonly podName: string | undefined;
}

/** Reads what --enable-capacity needs from the environment.
 * @returns undefined where this process asks for no capacity
 * @throws UsageError where a variable is not set */
export function capacityPlace({
  flags,
  env,
}: Pick<Context, 'flags' | 'env'>): CapacityPlace | undefined {
  if (!flags.enableCapacity || flags.capacityThreads === 0) return undefined;
  const namespace = capacityNamespace(env);
  if (flags.capacityOwnerrefLevel < 0) return { namespace, podName: undefined };
  const { POD_NAME: podName = '' } = env;
  if (podName === '')
    throw new UsageError('need POD_NAME env variable to determine CSIStorageCapacity owner');
  return { namespace, podName };
}

/** The hints that runs of claims and volumes leave. */
export function openCapacityHints({
  context: { flags, log },
  connections: { link },
  driver,
}: Base): CapacityHints {
  if (!flags.enableCapacity) return NO_CAPACITY_HINTS;
  const store = redisHintStore(link.redis, flags.redisPrefix, driver.name);
  return createCapacityHints(store, { isMinusInFlight: flags.capacityMinusInFlight, log });
}

interface CapacityParts {
  readonly place: CapacityPlace;
  readonly caches: Pick<DriverCaches, 'classOf' | 'topology'>;
  readonly startConsumer: StartConsumer;
}

/** Starts the work of the capacity queue as soon as the objects are listed and their owner is
 * found; until then says in /readyz what is missing. */
export function openCapacity(base: Base, parts: CapacityParts): void {
  const { context, connections, driver } = base;
  const { closers, health, log, metrics, stopping } = context;
  const { place } = parts;
  const manager = { driver: driver.name, managedBy: managedBy() };
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
  let consumerTrouble = (): string | undefined => undefined;
  health.ready('capacity', () => ownerTrouble ?? objects.trouble ?? consumerTrouble());
  const begin = async (): Promise<void> => {
    const owner = await findOwner(context, connections.kube, place, (trouble) => {
      ownerTrouble = trouble;
    });
    await objects.open();
    if (stopping.aborted) return;
    const ports = createPorts(base, { ...parts, objects, owner, manager });
    const consumer = parts.startConsumer('capacity', context.flags.capacityThreads, (key, run) =>
      reconcileCapacity(ports, key, run),
    );
    consumerTrouble = () => consumer.trouble ?? consumer.stuck;
  };
  void begin();
}

function createPorts(
  { context, connections, driver: { name: driver } }: Base,
  parts: CapacityParts & Pick<CapacityPorts, 'owner' | 'manager'> & { objects: ObjectStore },
): CapacityPorts {
  const { flags, log } = context;
  const { kube, gateways, nodeGateways } = connections;
  const { redis } = connections.link;
  const { redisPrefix: prefix } = flags;
  const { place, caches, objects, owner, manager } = parts;
  const active = redisActiveGateway(redis, prefix, driver);
  return {
    kube,
    csi: gateways.calls,
    gatewayOf: async (segment) => {
      if (nodeGateways === undefined)
        return (await askRedis(active.read())).endpoint || gateways.soleAddress;
      // Only a driver with topology has segments with labels, and only then nodes are watched.
      const topology = segment.length === 0 ? undefined : caches.topology();
      const lookups = { gateways: nodeGateways, topology };
      const node = chooseNodeOfSegment(segment, lookups);
      return node === undefined ? undefined : nodeAddress(node);
    },
    classOf: caches.classOf,
    objects,
    readTimes: redisReadTimes(redis, prefix, driver),
    mayWrite: redisWriteLimit(redis, {
      prefix,
      driver,
      perSecond: flags.kubeApiCapacityQps,
      burst: flags.kubeApiCapacityBurst,
      clock: systemClock,
    }),
    requestedBytes: flags.capacityMinusInFlight
      ? redisRequestedBytes(redis, prefix, driver)
      : undefined,
    manager,
    namespace: place.namespace,
    owner,
    includesImmediate: flags.capacityForImmediateBinding,
    timeoutMs: flags.timeoutMs,
    log,
  };
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
