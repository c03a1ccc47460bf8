import type { CinderSource, Class, CsiSource } from '../../kube/objects.ts';
import { renameZoneKeys } from './class-zones.ts';
import { renameFsType } from './parameters.ts';
import { CINDER } from './plugins.ts';
import { toDriverTopology, toLabelTopology } from './topology.ts';
import { mountFields, withSpec } from './volume-parts.ts';
import type { VolumeParts } from './volume-parts.ts';

/** Cinder's class for its driver (spec 07 §3). `zone` and `zones` mean nothing here. */
export function cinderClass(cls: Class): Class {
  return renameZoneKeys({ ...cls, parameters: renameFsType(cls.parameters) }, CINDER.zoneKey);
}

/** Cinder's volume for its driver (spec 07 §5). The source's secret is lost, as upstream has it. */
export function cinderToCsi<V extends VolumeParts>(volume: V, source: CinderSource): V {
  const csi: CsiSource = {
    driver: CINDER.csiDriver,
    volumeHandle: source.volumeID,
    ...mountFields(source),
    volumeAttributes: {},
  };
  return toDriverTopology(withSpec(volume, { csi }), CINDER.zoneKey);
}

/** A new volume of Cinder's driver as the in-tree plug-in would have it (spec 07 §6). Its zones
 * tell no region. */
export function cinderToInTree<V extends VolumeParts>(volume: V, csi: CsiSource): V {
  return toLabelTopology(
    withSpec(volume, { cinder: { volumeID: csi.volumeHandle, ...mountFields(csi) } }),
    CINDER.zoneKey,
  );
}
