import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for `sutler --help`. */
export const summary =
  'a CSI driver for trying and testing: volumes are directories, or files for block volumes';

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
    help: 'Folder that holds the volumes and snapshots; made if it is missing. Must be given.',
  },
  'driver-name': {
    type: 'string',
    default: 'sample.csi.sutler.dev',
    help: 'Name that the driver gives itself.',
  },
  'node-id': { type: 'string', default: 'sample-node', help: 'Node that NodeGetInfo names.' },
  'delay-ms': {
    type: 'int',
    default: 0,
    min: 0,
    help: 'Time that each creation, deletion and change takes, at least.',
  },
  'capacity-gib': {
    type: 'int',
    default: 1024,
    min: 0,
    help: 'Size of the pool that volumes are taken from; a full pool answers ResourceExhausted.',
  },
  'mutable-parameters': {
    type: 'strings',
    default: '',
    help: 'Parameters that a VolumeAttributesClass may have; others are refused. Empty: all are taken.',
  },
});
