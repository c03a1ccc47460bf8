import { type Flags, perDriver, UsageError } from '../runtime/flags.ts';

/** The flag about storage capacity that ingest and jobs both read. */
export const capacityFlags = perDriver({
  'enable-capacity': {
    type: 'bool',
    default: false,
    help:
      'Publishes CSIStorageCapacity objects in the namespace that the variable NAMESPACE names. ' +
      'ingest and jobs need the same value.',
    upstream: 'same',
  },
});

/** The flags that only ingest reads. */
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
    help: 'How often ingest asks the driver for every capacity; after a change it asks at once.',
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
    help: 'CSIStorageCapacity objects that ingest may write per second; 0 or less: no limit.',
    upstream: 'same; there also for leader election',
  },
  'kube-api-capacity-burst': {
    type: 'int',
    default: 5,
    min: 0,
    help: 'Objects that ingest may write at once above --kube-api-capacity-qps.',
    upstream: 'same',
  },
});

/** Where the objects are, and who owns them. */
export interface CapacityPlace {
  readonly namespace: string;
  /** The pod of this process; undefined if the objects have no owner. */
  readonly podName: string | undefined;
}

/** Reads what --enable-capacity needs from the environment.
 * @returns undefined if capacity is not published
 * @throws UsageError if a variable is not set */
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
