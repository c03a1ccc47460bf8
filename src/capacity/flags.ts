import { type Flags, perDriver, UsageError } from '../runtime/flags.ts';

/** The flags about storage capacity that ingest and jobs both read. */
export const capacityFlags = perDriver({
  'enable-capacity': {
    type: 'bool',
    default: false,
    help:
      'Publishes CSIStorageCapacity objects in the namespace of the variable NAMESPACE. ' +
      'ingest and jobs need the same value.',
    upstream: 'same',
  },
  'capacity-for-immediate-binding': {
    type: 'bool',
    default: false,
    help: 'Publishes capacity of classes with immediate binding, too.',
    upstream: 'same',
  },
});

/** Those that ingest alone reads. */
export const capacityPollFlags = perDriver({
  'capacity-poll-interval': {
    type: 'durationMs',
    default: '1m',
    min: '100ms',
    help: 'How often the driver is asked for every capacity; after a change it is asked at once.',
    upstream: 'same; below 100ms is refused here',
  },
});

/** Those that jobs alone read. */
export const capacityWorkFlags = perDriver({
  'capacity-threads': {
    type: 'int',
    default: 1,
    min: 0,
    help: 'GetCapacity calls of this process at once; 0: it leaves them to other jobs processes.',
    upstream: 'same',
  },
  'capacity-ownerref-level': {
    type: 'int',
    default: 1,
    help:
      'Owner of CSIStorageCapacity objects, counted from the pod of jobs, which the variables ' +
      'POD_NAME and NAMESPACE name. 0: the pod, 1: its ReplicaSet or StatefulSet, ' +
      '2: its Deployment; negative: none.',
    upstream: 'same',
  },
  'capacity-minus-in-flight': {
    type: 'bool',
    default: false,
    help:
      'Takes what creations under way have asked for off capacity and maximumVolumeSize, so ' +
      'that the scheduler does not count on it again.',
  },
  'kube-api-capacity-qps': {
    type: 'float',
    default: 1,
    help:
      'CSIStorageCapacity objects that all workers of a driver together write per second; ' +
      '0 or less: no limit.',
    upstream: 'same; there also for leader election',
  },
  'kube-api-capacity-burst': {
    type: 'int',
    default: 5,
    min: 0,
    help: 'Objects above --kube-api-capacity-qps that may be written at once.',
    upstream: 'same',
  },
});

type Environment = Readonly<Record<string, string | undefined>>;

/** The namespace of our CSIStorageCapacity objects.
 * @throws UsageError where the variable is not set */
export function capacityNamespace(env: Environment): string {
  const { NAMESPACE: namespace = '' } = env;
  if (namespace === '')
    throw new UsageError('need NAMESPACE env variable for CSIStorageCapacity objects');
  return namespace;
}

/** Where the objects are written, and whose they are. */
export interface CapacityPlace {
  readonly namespace: string;
  /** The pod of this process; undefined where the objects have no owner. */
  readonly podName: string | undefined;
}

/** Reads what jobs need for --enable-capacity from the environment.
 * @returns undefined where this process asks for no capacity
 * @throws UsageError where a variable is not set */
export function capacityPlace(
  flags: Pick<
    Flags<typeof capacityFlags & typeof capacityWorkFlags>,
    'enableCapacity' | 'capacityThreads' | 'capacityOwnerrefLevel'
  >,
  env: Environment,
): CapacityPlace | undefined {
  if (!flags.enableCapacity || flags.capacityThreads === 0) return undefined;
  const namespace = capacityNamespace(env);
  if (flags.capacityOwnerrefLevel < 0) return { namespace, podName: undefined };
  const { POD_NAME: podName = '' } = env;
  if (podName === '')
    throw new UsageError('need POD_NAME env variable to determine CSIStorageCapacity owner');
  return { namespace, podName };
}
