import type { Fields } from '../../../../conformance/connection.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import type { Dice } from './dice.ts';
import type { Part } from './part.ts';

const P = 'csi.storage.k8s.io/';
const SECRET = 'volume.kubernetes.io/provisioner-deletion-secret-';
const FINALIZER = 'external-provisioner.volume.kubernetes.io/finalizer';

interface Static {
  readonly label: string;
  readonly metadata?: Fields;
  readonly spec?: Fields | ((scene: Scene) => Fields);
  /** Of another driver; the refusal of that is another entry of docs/parity.md. */
  readonly isForeign?: true;
}
const METADATA: readonly Static[] = [
  { label: 'plain' },
  { label: 'protected', metadata: { finalizers: [FINALIZER] } },
  { label: 'with another finalizer', metadata: { finalizers: ['example.com/other'] } },
  ...['(driver)', 'other.example.com', '', 'kubernetes.io/gce-pd'].map((by) => ({
    label: `provisioned by ${JSON.stringify(by)}`,
    metadata: { annotations: { 'pv.kubernetes.io/provisioned-by': by } },
  })),
  {
    label: 'migrated to ours',
    metadata: { annotations: { 'pv.kubernetes.io/migrated-to': '(driver)' } },
  },
  {
    label: 'provisioned by another, migrated to ours',
    metadata: {
      annotations: {
        'pv.kubernetes.io/provisioned-by': 'kubernetes.io/x',
        'pv.kubernetes.io/migrated-to': '(driver)',
      },
    },
  },
  {
    label: 'annotated secret',
    metadata: { annotations: { [`${SECRET}name`]: 'creds', [`${SECRET}namespace`]: '(own)' } },
  },
  { label: 'half a secret annotation', metadata: { annotations: { [`${SECRET}name`]: 'creds' } } },
  {
    label: 'beta class',
    metadata: { annotations: { 'volume.beta.kubernetes.io/storage-class': '(class)' } },
  },
];
const SPECS: readonly Static[] = [
  { label: 'Delete' },
  { label: 'Retain', spec: { persistentVolumeReclaimPolicy: 'Retain' } },
  { label: 'Recycle', spec: { persistentVolumeReclaimPolicy: 'Recycle' } },
  {
    label: 'of another driver',
    spec: (scene) => ({
      csi: { driver: 'other.example.com', volumeHandle: `h-${scene.className}` },
    }),
    isForeign: true,
  },
  { label: 'hostPath', isForeign: true, spec: { csi: null, hostPath: { path: '/tmp/nowhere' } } },
  {
    label: 'NFS Recycle',
    isForeign: true,
    spec: { csi: null, nfs: { server: 'x', path: '/' }, persistentVolumeReclaimPolicy: 'Recycle' },
  },
  { label: 'GCE', isForeign: true, spec: { csi: null, gcePersistentDisk: { pdName: 'disk' } } },
  { label: 'of no claim' },
  {
    label: 'of a claim in another namespace',
    spec: { claimRef: { namespace: 'default', name: 'missing' } },
  },
  {
    label: 'odd handle',
    spec: (scene) => ({ csi: { driver: scene.driver, volumeHandle: ` é"${scene.className}\n` } }),
  },
  { label: 'larger', spec: { capacity: { storage: '7Gi' } } },
  {
    label: 'with affinity',
    spec: {
      nodeAffinity: {
        required: {
          nodeSelectorTerms: [{ matchExpressions: [{ key: 'a', operator: 'In', values: ['b'] }] }],
        },
      },
    },
  },
  {
    label: 'with publish secrets',
    spec: (scene) => ({
      csi: {
        driver: scene.driver,
        volumeHandle: `h-${scene.className}`,
        nodeStageSecretRef: { name: 'creds', namespace: 'x' },
        readOnly: true,
        fsType: 'xfs',
      },
    }),
  },
];
const CLASSES: readonly Part[] = [
  { label: 'plain class' },
  {
    label: 'class with secret',
    parameters: (scene) => ({
      [`${P}provisioner-secret-name`]: 'creds',
      [`${P}provisioner-secret-namespace`]: scene.namespace,
    }),
  },
  {
    label: 'class with template',
    parameters: {
      [`${P}secret-name`]: '${pvc.name}-${pv.name}',
      [`${P}secret-namespace`]: '${pvc.namespace}',
    },
  },
  {
    label: 'class with annotation',
    parameters: {
      [`${P}provisioner-secret-name`]: "${pvc.annotations['a']}",
      [`${P}provisioner-secret-namespace`]: 'default',
    },
  },
  { label: 'class with half', parameters: { [`${P}provisioner-secret-name`]: 'x' } },
  {
    label: 'deprecated',
    parameters: {
      csiProvisionerSecretName: 'creds',
      csiProvisionerSecretNamespace: '${pvc.namespace}',
    },
  },
];

/** A random static volume. */
export function staticParts(dice: Dice): readonly Part[] {
  const [spec, cls] = [dice.one(SPECS), dice.one(CLASSES)];
  const meta = dice.one(
    spec.isForeign === true
      ? METADATA.filter(({ metadata }) => !JSON.stringify(metadata ?? {}).includes('(driver)'))
      : METADATA,
  );
  const nameOf = (scene: Scene): string => `static-${scene.className}`;
  const isClaimed = spec.label !== 'of no claim';
  return [
    cls,
    {
      label: `static volume ${meta.label}, ${spec.label}`,
      spec: (scene) => (isClaimed ? { volumeName: nameOf(scene) } : { storageClassName: '' }),
      prepare: async (scene) => {
        for (const name of ['creds', 'others', `data-${nameOf(scene)}`])
          await scene.makeSecret(name, { user: name });
        const text = JSON.stringify(meta.metadata ?? {})
          .replaceAll('(driver)', scene.driver)
          .replaceAll('(own)', scene.namespace)
          .replaceAll('(class)', scene.className);
        await scene.makeVolume(nameOf(scene), {
          metadata: JSON.parse(text) as Fields,
          spec: {
            storageClassName: scene.className,
            persistentVolumeReclaimPolicy: 'Delete',
            ...(isClaimed ? { claimRef: { namespace: scene.namespace, name: 'data' } } : {}),
            ...(typeof spec.spec === 'function' ? spec.spec(scene) : spec.spec),
          },
        });
      },
    },
  ];
}
