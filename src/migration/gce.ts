import { BETA_ZONE, ZONE } from '../kube/keys.ts';
import { prefixRefusal, RefusedError } from '../rules/rule.ts';
import { gceRegion, toLabelTopology, translateZones, ZONE_SEPARATOR } from './topology.ts';
import {
  type InTreePlugin,
  mountFields,
  parsePartition,
  renameFsType,
  type VolumeParts,
} from './in-tree-plugin.ts';

const ZONE_KEY = 'topology.gke.io/zone';

/** GCE persistent disks. Upstream: csi-translation-lib plugins/gce_pd.go. */
export const GCE: InTreePlugin<'gcePersistentDisk'> = {
  inTreeName: 'kubernetes.io/gce-pd',
  csiDriver: 'pd.csi.storage.gke.io',
  source: 'gcePersistentDisk',

  translateClass: (cls) => translateZones(renameFsType(cls), ZONE_KEY),

  identify: ({ pdName }) => pdName,

  toHandle: ({ pdName }, volume) => handleOf(pdName, zonesFromLabels(volume)),

  toInTreeSource(csi) {
    const parts = csi.volumeHandle.split('/');
    const pdName = parts[5];
    if (pdName === undefined)
      throw new RefusedError(
        `failed to get id components.Got: ${parts.length}, wanted 6 components or more. `,
      );
    const partition = csi.volumeAttributes?.['partition'] ?? '';
    return {
      pdName,
      ...mountFields(csi),
      ...(partition === '' ? {} : { partition: parsePartition(partition, 'Failed') }),
    };
  },

  finishInTree: (volume) => toLabelTopology(volume, ZONE_KEY, gceRegion),
};

/** The zones of a disk by the labels of its PV; empty if the PV has no zone label. */
export function zonesFromLabels({ metadata: { labels = {} } }: VolumeParts): readonly string[] {
  const label = [labels[BETA_ZONE], labels[ZONE]].find(
    (zones) => zones !== undefined && zones !== '',
  );
  return label?.split(ZONE_SEPARATOR) ?? [];
}

function handleOf(pdName: string, zones: readonly string[]): string {
  const [zone = 'UNSPECIFIED', ...others] = zones;
  if (others.length === 0) return `projects/UNSPECIFIED/zones/${zone}/disks/${pdName}`;
  const region = prefixRefusal('failed to get region from zones', () => gceRegion(zones));
  return `projects/UNSPECIFIED/regions/${region}/disks/${pdName}`;
}
