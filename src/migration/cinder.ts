import { renameZoneKeys, toLabelTopology } from './topology.ts';
import { type InTreePlugin, mountFields, renameFsType } from './in-tree-plugin.ts';

const ZONE_KEY = 'topology.cinder.csi.openstack.org/zone';

/** OpenStack Cinder. Upstream: csi-translation-lib plugins/openstack_cinder.go. */
export const CINDER: InTreePlugin<'cinder'> = {
  inTreeName: 'kubernetes.io/cinder',
  csiDriver: 'cinder.csi.openstack.org',
  source: 'cinder',

  // The parameters `zone` and `zones` have no special meaning here.
  translateClass: (cls) => renameZoneKeys(renameFsType(cls), ZONE_KEY),

  identify: ({ volumeID }) => volumeID,

  toHandle: ({ volumeID }) => volumeID,

  toInTreeSource: (csi) => ({ volumeID: csi.volumeHandle, ...mountFields(csi) }),

  // Cinder's zones do not name their region.
  finishInTree: (volume) => toLabelTopology(volume, ZONE_KEY),
};
