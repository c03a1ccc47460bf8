import { RESERVED_PARAMETER_PREFIX } from '../kube/keys.ts';
import { omitUnset } from '../runtime/json.ts';
import { labelPairOf, renameKey, renameZoneKeys, valuesOf } from './topology.ts';
import {
  indexByLowerCase,
  type InTreePlugin,
  type VolumeParts,
  withDefaultLabel,
} from './in-tree-plugin.ts';

const ZONE_KEY = 'topology.csi.vmware.com/zone';
const REGION_KEY = 'topology.csi.vmware.com/region';

/** vSphere. Upstream: csi-translation-lib plugins/vsphere_volume.go. */
export const VSPHERE: InTreePlugin<'vsphereVolume'> = {
  inTreeName: 'kubernetes.io/vsphere-volume',
  csiDriver: 'csi.vsphere.vmware.com',
  source: 'vsphereVolume',

  translateClass(cls) {
    const parameters: Record<string, string> = { csimigration: 'true' };
    for (const [key, value] of indexByLowerCase(cls.parameters)) {
      const name = PARAMETER_NAMES.get(key);
      if (name !== undefined) parameters[name] = value;
    }
    return renameZoneKeys({ ...cls, parameters }, ZONE_KEY);
  },

  identify: ({ volumePath }) => volumePath,

  toHandle: ({ volumePath }) => volumePath,

  // The storage policy is lost.
  toInTreeSource: (csi) => ({
    volumePath: csi.volumeAttributes?.['initialvolumefilepath'] ?? '',
    ...omitUnset({ fsType: csi.fsType }),
  }),

  finishInTree(volume) {
    const { zone, region } = labelPairOf(volume);
    return toLabel(toLabel(volume, ZONE_KEY, zone), REGION_KEY, region);
  },
};

/** The driver's name of each parameter that it accepts, by the lower-cased in-tree name; all other
 * parameters are left out. */
const PARAMETER_NAMES: ReadonlyMap<string, string> = new Map([
  ['fstype', `${RESERVED_PARAMETER_PREFIX}fstype`],
  ['storagepolicyname', 'storagepolicyname'],
  ...[
    'datastore',
    'diskformat',
    'hostfailurestotolerate',
    'forceprovisioning',
    'cachereservation',
    'diskstripes',
    'objectspacereservation',
    'iopslimit',
  ].map((key) => [key, `${key}-migrationparam`] as const),
]);

/** Upstream: translateTopologyFromCSIToInTreevSphere. */
function toLabel<V extends VolumeParts>(volume: V, key: string, label: string): V {
  const renamed = renameKey(volume, key, label);
  const [first] = valuesOf(renamed, label);
  return first === undefined ? renamed : withDefaultLabel(renamed, label, first);
}
