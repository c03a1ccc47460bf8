import { perDriver } from '../runtime/flags.ts';

/** The flags that decide how volumes are named and created. ingest and jobs need the same values,
 * since both compute names. */
export const provisioningFlags = perDriver({
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
    help: 'Hex digits of the claim’s UID in the volume name, 1 to 32; -1: the whole UID.',
    upstream: 'same; 0 and values above 32 are refused here',
  },
  'default-fstype': {
    type: 'string',
    default: '',
    help: 'File system for classes that name none.',
    upstream: 'same',
  },
  'extra-create-metadata': {
    type: 'bool',
    default: false,
    help: 'Adds the names of the claim and the PV to the CreateVolume parameters.',
    upstream: 'same',
  },
  'controller-publish-readonly': {
    type: 'bool',
    default: false,
    help: 'Marks the PV read-only if ReadOnlyMany is the only access mode of the claim.',
    upstream: 'same',
  },
  'prevent-volume-mode-conversion': {
    type: 'bool',
    default: true,
    help:
      'A restore may change the volume mode of a snapshot only if an annotation of the ' +
      'VolumeSnapshotContent allows it.',
    upstream: 'same',
  },
  'strict-topology': {
    type: 'bool',
    default: false,
    help:
      'For a claim with a selected node, asks the driver only for that node’s part of the ' +
      'cluster, instead of preferring it.',
    upstream: 'same',
  },
  'immediate-topology': {
    type: 'bool',
    default: true,
    help:
      'For a claim without a selected node and a class without allowed topologies, tells the ' +
      'driver all parts of the cluster. false: the driver chooses.',
    upstream: 'same',
  },
  'feature-gates': {
    type: 'strings',
    keepsRepeats: true,
    default: '',
    help:
      'Feature gates as NAME=true|false: Topology, CrossNamespaceVolumeDataSource, ' +
      'VolumeAttributesClass, ReleaseLeaderElectionOnExit, AllAlpha, AllBeta.',
    upstream: 'same; other names are refused',
  },
});
