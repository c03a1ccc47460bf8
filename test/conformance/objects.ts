import { unique, type Fields } from './connection.ts';

export const CLASSES = '/apis/storage.k8s.io/v1/storageclasses';
export const VOLUMES = '/api/v1/persistentvolumes';

/** Collection paths of one namespace. */
export function paths(namespace: string) {
  return {
    claims: `/api/v1/namespaces/${namespace}/persistentvolumeclaims`,
    secrets: `/api/v1/namespaces/${namespace}/secrets`,
    events: `/api/v1/namespaces/${namespace}/events`,
    leases: `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases`,
  } as const;
}

/** A secret. Tests of any kind of object use secrets, because no controller changes them. */
export function secret(
  name: string,
  more: { readonly metadata?: Fields; readonly fields?: Fields } = {},
) {
  return { apiVersion: 'v1', kind: 'Secret', metadata: { name, ...more.metadata }, ...more.fields };
}

/** A claim. By default its class does not exist, so the volume controller does not bind it. */
export function claim(
  name: string,
  more: { readonly metadata?: Fields; readonly spec?: Fields } = {},
) {
  return {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { name, ...more.metadata },
    spec: {
      accessModes: ['ReadWriteOnce'],
      storageClassName: unique('no-class'),
      resources: { requests: { storage: '1Gi' } },
      ...more.spec,
    },
  };
}

/** A CSI volume. By default its class does not exist, so no claim is bound to it. */
export function volume(
  name: string,
  more: { readonly metadata?: Fields; readonly spec?: Fields } = {},
) {
  return {
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: { name, ...more.metadata },
    spec: {
      accessModes: ['ReadWriteOnce'],
      capacity: { storage: '1Gi' },
      csi: { driver: 'conformance.sutler.dev', volumeHandle: `handle-${name}` },
      storageClassName: unique('no-class'),
      ...more.spec,
    },
  };
}

/** A class of a driver that does not exist. */
export function storageClass(
  name: string,
  more: { readonly metadata?: Fields; readonly fields?: Fields } = {},
) {
  return {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name, ...more.metadata },
    provisioner: 'conformance.sutler.dev',
    ...more.fields,
  };
}
