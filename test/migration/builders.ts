import type {
  Class,
  CsiSource,
  NewVolume,
  NodeSelectorTerm,
  Volume,
  VolumeSpec,
} from '#src/kube/objects.ts';
import { PLUGINS } from '#src/migration/plugins.ts';

/** Kubernetes' keys for zone and region, spelled out to check those of the source. */
export const GA_ZONE = 'topology.kubernetes.io/zone';
export const GA_REGION = 'topology.kubernetes.io/region';
export const BETA_ZONE = 'failure-domain.beta.kubernetes.io/zone';
export const BETA_REGION = 'failure-domain.beta.kubernetes.io/region';

export const AZURE_DISK_URI =
  '/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/disk';

type Labels = Readonly<Record<string, string>>;

/** Freezes the whole value: a rule that changes it throws. */
function frozen<T>(value: T): T {
  if (typeof value === 'object' && value !== null) {
    for (const part of Object.values(value)) frozen(part);
    Object.freeze(value);
  }
  return value;
}

export function aClassOf(provisioner: string, change: Partial<Class> = {}): Class {
  return frozen({
    metadata: { name: 'class', uid: 'class-uid', resourceVersion: '1' },
    provisioner,
    ...change,
  });
}

/** A stored volume. */
export function aStoredVolume(
  spec: VolumeSpec,
  metadata: { labels?: Labels; annotations?: Labels } = {},
): Volume {
  return frozen({
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: { name: 'pv', uid: 'volume-uid', resourceVersion: '9', ...metadata },
    spec: { capacity: { storage: '1Gi' }, storageClassName: 'class', ...spec },
    status: { phase: 'Released' as const },
  });
}

/** A new volume of the driver of an in-tree plug-in. */
export function aNewVolume(
  inTreeName: string,
  csi: Partial<CsiSource> = {},
  change: { spec?: VolumeSpec; metadata?: Partial<NewVolume['metadata']> } = {},
): NewVolume {
  const driver =
    PLUGINS.find((plugin) => plugin.inTreeName === inTreeName)?.csiDriver ?? inTreeName;
  return frozen({
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: { name: 'pv', finalizers: ['f'], ...change.metadata },
    spec: {
      capacity: { storage: '1Gi' },
      csi: { driver, volumeHandle: 'handle', ...csi },
      ...change.spec,
    },
  });
}

/** An affinity of terms that are given as values by key. */
export function affinity(
  ...terms: readonly Readonly<Record<string, readonly string[]>>[]
): NonNullable<VolumeSpec['nodeAffinity']> {
  return { required: { nodeSelectorTerms: terms.map(termOf) } };
}

function termOf(values: Readonly<Record<string, readonly string[]>>): NodeSelectorTerm {
  return {
    matchExpressions: Object.entries(values).map(([key, list]) => ({
      key,
      operator: 'In',
      values: list,
    })),
  };
}

/** A check for assert.throws: a refusal with this message. */
export const refusal = (message: string) => ({ name: 'RefusedError', message });
