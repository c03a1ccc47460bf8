import {
  PORTWORX_SECRET_NAME,
  PORTWORX_SECRET_NAMESPACE,
  RESERVED_PARAMETER_PREFIX,
} from '../../kube/keys.ts';
import type { Class, CsiSource, PortworxVolumeSource } from '../../kube/objects.ts';
import { byLowerCase, without } from './parameters.ts';
import { PORTWORX } from './plugins.ts';
import { mountFields, withSpec } from './volume-parts.ts';
import type { VolumeParts } from './volume-parts.ts';

const SECRET_PURPOSES = [
  'provisioner',
  'controller-publish',
  'node-publish',
  'node-stage',
  'controller-expand',
  'node-expand',
];

/** Portworx's class for its driver (spec 07 §3): the one secret it names is every call's. Of all
 * plug-ins only this one's provisioner changes too. */
export function portworxClass(cls: Class): Class {
  const given = byLowerCase(cls.parameters);
  const parameters = {
    ...without(cls.parameters, [PORTWORX_SECRET_NAME, PORTWORX_SECRET_NAMESPACE]),
    ...forEachPurpose('name', given.get(PORTWORX_SECRET_NAME)),
    ...forEachPurpose('namespace', given.get(PORTWORX_SECRET_NAMESPACE)),
  };
  return {
    ...cls,
    provisioner: PORTWORX.csiDriver,
    ...(Object.keys(parameters).length === 0 ? {} : { parameters }),
  };
}

function forEachPurpose(
  field: 'name' | 'namespace',
  value: string | undefined,
): Record<string, string> {
  if (value === undefined) return {};
  return Object.fromEntries(
    SECRET_PURPOSES.map((purpose) => [
      `${RESERVED_PARAMETER_PREFIX}${purpose}-secret-${field}`,
      value,
    ]),
  );
}

/** Portworx's volume for its driver (spec 07 §5). That it was read-only is lost, as upstream has
 * it. */
export function portworxToCsi<V extends VolumeParts>(volume: V, source: PortworxVolumeSource): V {
  const csi: CsiSource = {
    driver: PORTWORX.csiDriver,
    volumeHandle: source.volumeID,
    ...mountFields({ fsType: source.fsType }),
    volumeAttributes: {},
    ...secretsOf(volume),
  };
  return withSpec(volume, { csi });
}

function secretsOf({ metadata }: VolumeParts): Partial<CsiSource> {
  const name = metadata.annotations?.[PORTWORX_SECRET_NAME];
  const namespace = metadata.annotations?.[PORTWORX_SECRET_NAMESPACE];
  if (name === undefined || namespace === undefined) return {};
  const ref = { name, namespace };
  return {
    controllerPublishSecretRef: ref,
    nodeStageSecretRef: ref,
    nodePublishSecretRef: ref,
    controllerExpandSecretRef: ref,
    nodeExpandSecretRef: ref,
  };
}

/** A new volume of Portworx's driver as the in-tree plug-in would have it (spec 07 §6). */
export function portworxToInTree<V extends VolumeParts>(volume: V, csi: CsiSource): V {
  return withSpec(volume, { portworxVolume: { volumeID: csi.volumeHandle, ...mountFields(csi) } });
}
