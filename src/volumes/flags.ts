import { defineFlags } from '../runtime/flags.ts';

/** What volumes are called and made like. ingest and jobs must be given the same values: both
 * compute names. */
export const provisioningFlags = defineFlags({
  'volume-name-prefix': {
    type: 'string',
    default: 'pvc',
    help: 'First part of the CSI volume name and PV name.',
    upstream: 'same',
  },
  'volume-name-uuid-length': {
    type: 'int',
    default: -1,
    min: -1,
    max: 32,
    help: 'Digits of the claim’s UID in the volume name, 1 to 32; -1: the whole UID.',
    upstream: 'same; 0 and values above 32 are refused here',
  },
  'default-fstype': {
    type: 'string',
    default: '',
    help: 'File system where the class names none.',
    upstream: 'same',
  },
  'extra-create-metadata': {
    type: 'bool',
    default: false,
    help: 'Adds the names of claim and PV to the CreateVolume parameters.',
    upstream: 'same',
  },
  'controller-publish-readonly': {
    type: 'bool',
    default: false,
    help: 'Marks volumes that are only ever read as read-only in the PV.',
    upstream: 'same',
  },
  'prevent-volume-mode-conversion': {
    type: 'bool',
    default: true,
    help: 'A restore may change the volume mode of a snapshot only where the content’s annotation allows it.',
    upstream: 'same',
  },
  'feature-gates': {
    type: 'strings',
    keepsRepeats: true,
    default: '',
    help: 'Gates as NAME=true|false: Topology, CrossNamespaceVolumeDataSource, VolumeAttributesClass, ReleaseLeaderElectionOnExit, AllAlpha, AllBeta.',
    upstream: 'same; other names are refused',
  },
});
