import {
  PORTWORX_SECRET_NAME,
  PORTWORX_SECRET_NAMESPACE,
  RESERVED_PARAMETER_PREFIX,
} from '../kube/keys.ts';
import { indexByLowerCase, type InTreePlugin, mountFields, omitKeys } from './in-tree-plugin.ts';

/** Portworx. Upstream: csi-translation-lib plugins/portworx.go. */
export const PORTWORX: InTreePlugin<'portworxVolume'> = {
  inTreeName: 'kubernetes.io/portworx-volume',
  csiDriver: 'pxd.portworx.com',
  source: 'portworxVolume',

  // The one secret of the class is used for every call. This is the only plug-in whose classes
  // change their provisioner too.
  translateClass(cls) {
    const given = indexByLowerCase(cls.parameters);
    const parameters = {
      ...omitKeys(cls.parameters, PORTWORX_SECRET_NAME, PORTWORX_SECRET_NAMESPACE),
      ...repeatForPurposes('secret-name', given.get(PORTWORX_SECRET_NAME)),
      ...repeatForPurposes('secret-namespace', given.get(PORTWORX_SECRET_NAMESPACE)),
    };
    return {
      ...cls,
      provisioner: PORTWORX.csiDriver,
      ...(Object.keys(parameters).length === 0 ? {} : { parameters }),
    };
  },

  identify: ({ volumeID }) => volumeID,

  toHandle: ({ volumeID }) => volumeID,

  toInTreeSource: (csi) => ({ volumeID: csi.volumeHandle, ...mountFields(csi) }),
};

const SECRET_PURPOSES = [
  'provisioner',
  'controller-publish',
  'node-publish',
  'node-stage',
  'controller-expand',
  'node-expand',
];

function repeatForPurposes(field: string, value: string | undefined): Record<string, string> {
  if (value === undefined) return {};
  const keys = SECRET_PURPOSES.map((purpose) => `${RESERVED_PARAMETER_PREFIX}${purpose}-${field}`);
  return Object.fromEntries(keys.map((key) => [key, value]));
}
