import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for `sutler --help`. */
export const summary =
  'is a CSI driver for trying and testing: its volumes have a size, but no contents';

/** Every flag of the sample driver. */
export const flags = defineFlags({
  ...processFlags,
  'csi-address': {
    type: 'string',
    default: '/run/csi/socket',
    help: 'Socket that the driver listens on.',
  },
  'data-dir': {
    type: 'string',
    default: '',
    help: 'Folder for volumes and snapshots; created if it is missing. Required.',
  },
  'driver-name': {
    type: 'string',
    default: 'sample.csi.sutler.dev',
    help: 'Name of the driver.',
  },
  'node-id': {
    type: 'string',
    default: 'sample-node',
    help: 'Node ID in the answer of NodeGetInfo; its topology is that of the pool with this name.',
  },
  'delay-ms': {
    type: 'int',
    default: 0,
    min: 0,
    help: 'Minimum time of each creation, deletion and change.',
  },
  'capacity-gib': {
    type: 'int',
    default: 1024,
    min: 0,
    help: 'Size of the storage pool. CreateVolume in a full pool fails with ResourceExhausted.',
  },
  pool: {
    type: 'strings',
    default: '',
    help:
      'ZONE/NODE=SIZE: a node and the size of its pool, such as zone-a/node-a1=10Gi. Given once ' +
      'for each node: volumes then have a topology, and --capacity-gib is not used.',
  },
  'mutable-parameters': {
    type: 'strings',
    default: '',
    help:
      'Parameters that a VolumeAttributesClass may have; others are refused. ' +
      'Empty: all are accepted.',
  },
});
