import type { Claim, Class, Volume } from '#src/kube/objects.ts';
import { STORAGE_PROVISIONER } from '#src/kube/keys.ts';
import type { DriverFacts } from '#src/volumes/driver-facts.ts';
import { DEFAULT_GATES, type ProvisioningOptions } from '#src/volumes/flags.ts';

/* A claim, class, volume and driver that fit together: the fixture of upstream's tests. */

export const DRIVER = 'test-driver';

export function aClaim(
  change: { metadata?: Partial<Claim['metadata']>; spec?: Partial<Claim['spec']> } = {},
): Claim {
  return {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: {
      name: 'claim',
      namespace: 'space',
      uid: 'testid',
      resourceVersion: '7',
      annotations: { [STORAGE_PROVISIONER]: DRIVER },
      ...change.metadata,
    },
    spec: {
      accessModes: ['ReadWriteOnce'],
      resources: { requests: { storage: '100' } },
      storageClassName: 'class',
      ...change.spec,
    },
  };
}

export function aClass(change: Partial<Class> = {}): Class {
  return {
    metadata: { name: 'class', uid: 'class-uid', resourceVersion: '1' },
    provisioner: DRIVER,
    reclaimPolicy: 'Delete',
    parameters: {},
    ...change,
  };
}

export function aVolume(
  change: {
    metadata?: Partial<Volume['metadata']>;
    spec?: Partial<Volume['spec']>;
    phase?: string;
  } = {},
): Volume {
  return {
    metadata: {
      name: 'test-testi',
      uid: 'volume-uid',
      resourceVersion: '9',
      annotations: { 'pv.kubernetes.io/provisioned-by': DRIVER },
      finalizers: ['external-provisioner.volume.kubernetes.io/finalizer'],
      ...change.metadata,
    },
    spec: {
      persistentVolumeReclaimPolicy: 'Delete',
      claimRef: { uid: 'testid', namespace: 'space', name: 'claim' },
      csi: { driver: DRIVER, volumeHandle: 'test-volume-id' },
      ...change.spec,
    },
    status: { phase: (change.phase ?? 'Released') as 'Released' },
  };
}

export const driver: DriverFacts = {
  name: DRIVER,
  pluginCapabilities: new Set(['CONTROLLER_SERVICE']),
  controllerCapabilities: new Set(['CREATE_DELETE_VOLUME']),
};

export const options: ProvisioningOptions = {
  volumeNamePrefix: 'test',
  volumeNameUuidLength: 5,
  defaultFstype: 'ext4',
  extraCreateMetadata: false,
  controllerPublishReadonly: false,
  preventVolumeModeConversion: true,
  strictTopology: false,
  immediateTopology: true,
  gates: DEFAULT_GATES,
  identity: 'test-provisioner',
};
