import type { Fields } from '../../../../conformance/connection.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import type { Dice } from './dice.ts';
import type { Part } from './part.ts';

const P = 'csi.storage.k8s.io/';
const SECRET = 'volume.kubernetes.io/provisioner-deletion-secret-';
const FINALIZER = 'external-provisioner.volume.kubernetes.io/finalizer';

interface Static {
  readonly words: string;
  readonly metadata?: Fields;
  readonly spec?: Fields | ((scene: Scene) => Fields);
  /** Of another driver; the refusal of that is another row of docs/parity.md. */
  readonly isForeign?: true;
}
const METADATA: readonly Static[] = [
  { words: 'plain' },
  { words: 'protected', metadata: { finalizers: [FINALIZER] } },
  { words: 'with another finalizer', metadata: { finalizers: ['example.com/hold'] } },
  ...['(driver)', 'other.example.com', '', 'kubernetes.io/gce-pd'].map((by) => ({
    words: `provisioned by ${JSON.stringify(by)}`,
    metadata: { annotations: { 'pv.kubernetes.io/provisioned-by': by } },
  })),
  {
    words: 'migrated to ours',
    metadata: { annotations: { 'pv.kubernetes.io/migrated-to': '(driver)' } },
  },
  {
    words: 'provisioned by another, migrated to ours',
    metadata: {
      annotations: {
        'pv.kubernetes.io/provisioned-by': 'kubernetes.io/x',
        'pv.kubernetes.io/migrated-to': '(driver)',
      },
    },
  },
  {
    words: 'noted secret',
    metadata: { annotations: { [`${SECRET}name`]: 'creds', [`${SECRET}namespace`]: '(own)' } },
  },
  { words: 'half a noted secret', metadata: { annotations: { [`${SECRET}name`]: 'creds' } } },
  {
    words: 'beta class',
    metadata: { annotations: { 'volume.beta.kubernetes.io/storage-class': '(class)' } },
  },
];
const SPECS: readonly Static[] = [
  { words: 'Delete' },
  { words: 'Retain', spec: { persistentVolumeReclaimPolicy: 'Retain' } },
  { words: 'Recycle', spec: { persistentVolumeReclaimPolicy: 'Recycle' } },
  {
    words: 'of another driver',
    spec: (scene) => ({
      csi: { driver: 'other.example.com', volumeHandle: `h-${scene.className}` },
    }),
    isForeign: true,
  },
  { words: 'hostPath', isForeign: true, spec: { csi: null, hostPath: { path: '/tmp/nowhere' } } },
  {
    words: 'NFS Recycle',
    isForeign: true,
    spec: { csi: null, nfs: { server: 'x', path: '/' }, persistentVolumeReclaimPolicy: 'Recycle' },
  },
  { words: 'GCE', isForeign: true, spec: { csi: null, gcePersistentDisk: { pdName: 'disk' } } },
  { words: 'of no claim' },
  {
    words: 'of a claim in another namespace',
    spec: { claimRef: { namespace: 'default', name: 'nobody-there' } },
  },
  {
    words: 'odd handle',
    spec: (scene) => ({ csi: { driver: scene.driver, volumeHandle: ` é"${scene.className}\n` } }),
  },
  { words: 'larger', spec: { capacity: { storage: '7Gi' } } },
  {
    words: 'with affinity',
    spec: {
      nodeAffinity: {
        required: {
          nodeSelectorTerms: [{ matchExpressions: [{ key: 'a', operator: 'In', values: ['b'] }] }],
        },
      },
    },
  },
  {
    words: 'with publish secrets',
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
  { words: 'plain class' },
  {
    words: 'class with secret',
    parameters: (scene) => ({
      [`${P}provisioner-secret-name`]: 'creds',
      [`${P}provisioner-secret-namespace`]: scene.namespace,
    }),
  },
  {
    words: 'class with template',
    parameters: {
      [`${P}secret-name`]: '${pvc.name}-${pv.name}',
      [`${P}secret-namespace`]: '${pvc.namespace}',
    },
  },
  {
    words: 'class with annotation',
    parameters: {
      [`${P}provisioner-secret-name`]: "${pvc.annotations['a']}",
      [`${P}provisioner-secret-namespace`]: 'default',
    },
  },
  { words: 'class with half', parameters: { [`${P}provisioner-secret-name`]: 'x' } },
  {
    words: 'deprecated',
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
  const isClaimed = spec.words !== 'of no claim';
  return [
    cls,
    {
      words: `static volume ${meta.words}, ${spec.words}`,
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
