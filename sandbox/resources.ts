import type { Resource } from '#src/kube/resources.ts';

/** Kinds that only the sandbox reads and writes. */
export const pods: Resource = {
  group: '',
  version: 'v1',
  plural: 'pods',
  kind: 'Pod',
  namespaced: true,
};
export const csiDrivers: Resource = {
  group: 'storage.k8s.io',
  version: 'v1',
  plural: 'csidrivers',
  kind: 'CSIDriver',
  namespaced: false,
};
