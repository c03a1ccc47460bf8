import { perDriver } from '../runtime/flags.ts';

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
