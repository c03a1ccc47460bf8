import { BETA_ZONE, ZONE } from '../../kube/keys.ts';
import type { Class, CsiSource, GcePersistentDiskSource } from '../../kube/objects.ts';
import { RefusedError } from '../provisioning-options.ts';
import { zonesToTopologies } from './class-zones.ts';
import { renameFsType } from './parameters.ts';
import { GCE } from './plugins.ts';
import { gceRegion } from './regions.ts';
import { toDriverTopology, toLabelTopology, ZONE_SEPARATOR } from './topology.ts';
import { mountFields, readPartition, withSpec } from './volume-parts.ts';
import type { VolumeParts } from './volume-parts.ts';

/** GCE's class for its driver (spec 07 §3). */
export function gceClass(cls: Class): Class {
  return zonesToTopologies({ ...cls, parameters: renameFsType(cls.parameters) }, GCE.zoneKey);
}

/** GCE's volume for its driver (spec 07 §5).
 * @throws RefusedError for zone labels that have no common region */
export function gceToCsi<V extends VolumeParts>(volume: V, source: GcePersistentDiskSource): V {
  const { accessModes } = volume.spec;
  const partition = source.partition ?? 0;
  const csi: CsiSource = {
    driver: GCE.csiDriver,
    volumeHandle: handleOf(volume, source.pdName),
    ...mountFields(source),
    volumeAttributes: { partition: partition === 0 ? '' : String(partition) },
  };
  const changed = withSpec(volume, {
    csi,
    ...(accessModes === undefined ? {} : { accessModes: [oneMode(accessModes)] }),
  });
  return toDriverTopology(changed, GCE.zoneKey);
}

/** The zones of a disk, by the labels of its PV; none where it has no such label. */
export function statedZones({ metadata: { labels = {} } }: VolumeParts): readonly string[] {
  const label = [labels[BETA_ZONE], labels[ZONE]].find(
    (zones) => zones !== undefined && zones !== '',
  );
  return label?.split(ZONE_SEPARATOR) ?? [];
}

function handleOf(volume: VolumeParts, pdName: string): string {
  const [zone = 'UNSPECIFIED', ...others] = statedZones(volume);
  if (others.length === 0) return `projects/UNSPECIFIED/zones/${zone}/disks/${pdName}`;
  const found = gceRegion([zone, ...others]);
  if ('problem' in found)
    throw new RefusedError(`failed to get region from zones: ${found.problem}`);
  return `projects/UNSPECIFIED/regions/${found.region}/disks/${pdName}`;
}

/** A disk is written from one node, or read from many. */
function oneMode(accessModes: readonly string[]): string {
  const isWritten = accessModes.includes('ReadWriteOnce') || accessModes.includes('ReadWriteMany');
  return !isWritten && accessModes.includes('ReadOnlyMany') ? 'ReadOnlyMany' : 'ReadWriteOnce';
}

/** A new volume of GCE's driver as the in-tree plug-in would have it (spec 07 §6).
 * @throws RefusedError for a handle or partition that can't be read, or zones without a common
 *   region */
export function gceToInTree<V extends VolumeParts>(volume: V, csi: CsiSource): V {
  const parts = csi.volumeHandle.split('/');
  const pdName = parts[5];
  if (pdName === undefined)
    throw new RefusedError(
      `failed to get id components.Got: ${parts.length}, wanted 6 components or more. `,
    );
  const text = csi.volumeAttributes?.['partition'] ?? '';
  const partition = text === '' ? {} : { partition: readPartition(text, 'Failed') };
  const source: GcePersistentDiskSource = { pdName, ...mountFields(csi), ...partition };
  return toLabelTopology(withSpec(volume, { gcePersistentDisk: source }), GCE.zoneKey, gceRegion);
}
