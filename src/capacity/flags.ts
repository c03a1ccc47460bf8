import { type Flags, perDriver, UsageError } from '../runtime/flags.ts';

/** The flag about storage capacity that ingest and jobs both read. */
export const capacityFlags = perDriver({
  'enable-capacity': {
    type: 'bool',
    default: false,
    help:
      'Publishes CSIStorageCapacity objects in the namespace of the variable NAMESPACE. ' +
      'ingest and jobs need the same value.',
    upstream: 'same',
  },
});

/** Those that ingest alone reads. */
export const capacityIngestFlags = perDriver({
  'capacity-for-immediate-binding': {
    type: 'bool',
    default: false,
    help: 'Publishes capacity of classes with immediate binding, too.',
    upstream: 'same',
  },
  'capacity-poll-interval': {
    type: 'durationMs',
    default: '1m',
    min: '100ms',
    help: 'How often the driver is asked for every capacity; after a change it is asked at once.',
    upstream: 'same; below 100ms is refused here',
  },
  'capacity-threads': {
    type: 'int',
    default: 1,
    min: 0,
    help: 'GetCapacity calls at once; 0: none.',
    upstream: 'same',
  },
  'capacity-ownerref-level': {
    type: 'int',
    default: 1,
    help:
      'Owner of CSIStorageCapacity objects, counted from the pod of ingest, which the variables ' +
      'POD_NAME and NAMESPACE name. 0: the pod, 1: its ReplicaSet or StatefulSet, ' +
      '2: its Deployment; negative: none.',
    upstream: 'same',
  },
  'kube-api-capacity-qps': {
    type: 'float',
    default: 1,
    help: 'CSIStorageCapacity objects that are written per second; 0 or less: no limit.',
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

/** Where the objects are written, and whose they are. */
export interface CapacityPlace {
  readonly namespace: string;
  /** The pod of this process; undefined where the objects have no owner. */
  readonly podName: string | undefined;
}

/** Reads what --enable-capacity needs from the environment.
 * @returns undefined where capacity is not published
 * @throws UsageError where a variable is not set */
export function capacityPlace(
  flags: Pick<
    Flags<typeof capacityFlags & typeof capacityIngestFlags>,
    'enableCapacity' | 'capacityOwnerrefLevel'
  >,
  env: Readonly<Record<string, string | undefined>>,
): CapacityPlace | undefined {
  if (!flags.enableCapacity) return undefined;
  const { NAMESPACE: namespace = '', POD_NAME: podName = '' } = env;
  if (namespace === '')
    throw new UsageError('need NAMESPACE env variable for CSIStorageCapacity objects');
  if (flags.capacityOwnerrefLevel < 0) return { namespace, podName: undefined };
  if (podName === '')
    throw new UsageError('need POD_NAME env variable to determine CSIStorageCapacity owner');
  return { namespace, podName };
}
