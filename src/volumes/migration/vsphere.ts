import { RESERVED_PARAMETER_PREFIX } from '../../kube/keys.ts';
import type { Class, CsiSource, VsphereVolumeSource } from '../../kube/objects.ts';
import { renameZoneKeys } from './class-zones.ts';
import { byLowerCase } from './parameters.ts';
import { VSPHERE } from './plugins.ts';
import { addKey, labelPairOf, renameKey, valuesOf } from './topology.ts';
import { mountFields, withDefaultLabel, withSpec } from './volume-parts.ts';
import type { VolumeParts } from './volume-parts.ts';

/** What the driver takes of an in-tree class, by lower-cased key. */
const PARAMETERS: ReadonlyMap<string, string> = new Map([
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

/** Whether a class parameter, however spelled, survives translation. */
export function isKnownToVsphere(parameter: string): boolean {
  return PARAMETERS.has(parameter.toLowerCase());
}

/** vSphere's class for its driver (spec 07 §3). What the driver does not take is left out. */
export function vsphereClass(cls: Class): Class {
  const parameters: Record<string, string> = { csimigration: 'true' };
  for (const [key, value] of byLowerCase(cls.parameters)) {
    const name = PARAMETERS.get(key);
    if (name !== undefined) parameters[name] = value;
  }
  return renameZoneKeys({ ...cls, parameters }, VSPHERE.zoneKey);
}

/** vSphere's volume for its driver (spec 07 §5). */
export function vsphereToCsi<V extends VolumeParts>(volume: V, source: VsphereVolumeSource): V {
  const policy = source.storagePolicyName ?? '';
  const csi: CsiSource = {
    driver: VSPHERE.csiDriver,
    volumeHandle: source.volumePath,
    ...mountFields({ fsType: source.fsType }),
    volumeAttributes: policy === '' ? {} : { storagepolicyname: policy },
  };
  const { zone, region } = labelPairOf(volume);
  return toDriverKey(
    toDriverKey(withSpec(volume, { csi }), zone, VSPHERE.zoneKey),
    region,
    VSPHERE.regionKey,
  );
}

/** As for the other clouds, but a label names one place only. */
function toDriverKey<V extends VolumeParts>(volume: V, label: string, key: string): V {
  if (valuesOf(volume, label).length > 0) return renameKey(volume, label, key);
  return addKey(volume, key, [volume.metadata.labels?.[label] ?? '']);
}

/** A new volume of vSphere's driver as the in-tree plug-in would have it (spec 07 §6). Its storage
 * policy is lost. */
export function vsphereToInTree<V extends VolumeParts>(volume: V, csi: CsiSource): V {
  const vsphereVolume: VsphereVolumeSource = {
    volumePath: csi.volumeAttributes?.['initialvolumefilepath'] ?? '',
    ...mountFields({ fsType: csi.fsType }),
  };
  const { zone, region } = labelPairOf(volume);
  return toLabel(
    toLabel(withSpec(volume, { vsphereVolume }), VSPHERE.zoneKey, zone),
    VSPHERE.regionKey,
    region,
  );
}

function toLabel<V extends VolumeParts>(volume: V, key: string, label: string): V {
  const renamed = renameKey(volume, key, label);
  const [first] = valuesOf(renamed, label);
  return first === undefined ? renamed : withDefaultLabel(renamed, label, first);
}
