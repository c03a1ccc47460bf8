import { STORAGE_PROVISIONER } from '#src/kube/keys.ts';
import { at, type Fields } from '../../../../conformance/connection.ts';
import { CLASSES, VOLUMES } from '../../../../conformance/objects.ts';
import type { Seen } from '../../../../harness/differential/observer.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import { makeSecrets } from './claims.ts';
import { type Dice, type Part, soon } from './part.ts';

const P = 'csi.storage.k8s.io/';
const SECRET = 'volume.kubernetes.io/provisioner-deletion-secret-';
const FINALIZER = 'external-provisioner.volume.kubernetes.io/finalizer';
const BETA_CLASS = 'volume.beta.kubernetes.io/storage-class';
const BY = 'pv.kubernetes.io/provisioned-by';
const TO = 'pv.kubernetes.io/migrated-to';
const ATTACHMENTS = '/apis/storage.k8s.io/v1/volumeattachments';

/** Metadata of a static volume, with places for names of the scene. */
const METADATA: readonly Fields[] = [
  {},
  { finalizers: [FINALIZER] },
  { finalizers: ['example.com/other'] },
  ...[
    ...['(driver)', 'other.example.com', '', 'kubernetes.io/gce-pd'].map((by) => ({ [BY]: by })),
    { [TO]: '(driver)' },
    { [BY]: 'kubernetes.io/x', [TO]: '(driver)' },
    { [`${SECRET}name`]: 'creds', [`${SECRET}namespace`]: '(own)' },
    { [`${SECRET}name`]: 'creds' },
    { [BETA_CLASS]: '(class)' },
  ].map((annotations) => ({ annotations })),
];
/** Specs of a static volume. */
const SPECS: readonly Fields[] = [
  {},
  { persistentVolumeReclaimPolicy: 'Retain' },
  { persistentVolumeReclaimPolicy: 'Recycle' },
  { claimRef: undefined },
  { claimRef: { namespace: 'default', name: 'missing' } },
  { capacity: { storage: '7Gi' } },
  { csi: { driver: '(driver)', volumeHandle: ' é"(class)\n' } },
  {
    csi: {
      driver: '(driver)',
      volumeHandle: 'h-(class)',
      nodeStageSecretRef: { name: 'creds', namespace: 'x' },
      readOnly: true,
      fsType: 'xfs',
    },
    nodeAffinity: {
      required: {
        nodeSelectorTerms: [{ matchExpressions: [{ key: 'a', operator: 'In', values: ['b'] }] }],
      },
    },
  },
];
/** The same of other drivers; that they are refused is another entry of docs/parity.md. */
const FOREIGN: readonly Fields[] = [
  { csi: { driver: 'other.example.com', volumeHandle: 'h-(class)' } },
  { csi: null, hostPath: { path: '/tmp/nowhere' } },
  { csi: null, gcePersistentDisk: { pdName: 'disk' } },
];
const PARAMETERS: readonly Readonly<Record<string, string>>[] = [
  {},
  { [`${P}secret-name`]: '${pvc.name}-${pv.name}', [`${P}secret-namespace`]: '${pvc.namespace}' },
  {
    [`${P}provisioner-secret-name`]: "${pvc.annotations['a']}",
    [`${P}provisioner-secret-namespace`]: 'default',
  },
  { [`${P}provisioner-secret-name`]: 'x' },
  { csiProvisionerSecretName: 'creds', csiProvisionerSecretNamespace: '${pvc.namespace}' },
];

/** A random static volume. */
export function staticParts(dice: Dice): readonly Part[] {
  const isForeign = dice.hits(0.3);
  const given = dice.one(isForeign ? FOREIGN : SPECS);
  const parameters = dice.one(PARAMETERS);
  const isOurs = (metadata: Fields): boolean => JSON.stringify(metadata).includes('(driver)');
  const metadata = dice.one(isForeign ? METADATA.filter((each) => !isOurs(each)) : METADATA);
  const isClaimed = !('claimRef' in given && given['claimRef'] === undefined);
  const nameOf = (scene: Scene): string => `static-${scene.className}`;
  const filled = (scene: Scene, fields: Fields): Fields =>
    JSON.parse(
      JSON.stringify(fields)
        .replaceAll('(driver)', scene.driver)
        .replaceAll('(own)', scene.namespace)
        .replaceAll('(class)', scene.className),
    ) as Fields;
  return [
    {
      label: `static volume ${JSON.stringify([given, metadata, parameters])}`,
      parameters,
      spec: (scene) => (isClaimed ? { volumeName: nameOf(scene) } : { storageClassName: '' }),
      prepare: async (scene) => {
        await makeSecrets(scene);
        await scene.makeVolume(nameOf(scene), {
          metadata: filled(scene, metadata),
          spec: {
            storageClassName: scene.className,
            persistentVolumeReclaimPolicy: 'Delete',
            ...(isClaimed ? { claimRef: { namespace: scene.namespace, name: 'data' } } : {}),
            ...filled(scene, given),
          },
        });
      },
    },
  ];
}

/** The volumes of claims that are not sources of clones. */
const ownVolumes = (scene: Scene) =>
  scene.volumes().filter(({ spec }) => at(spec, 'claimRef', 'name') !== 'source');
const edit = (label: string, act: (scene: Scene) => Promise<unknown>): Part => ({
  label,
  edit: act,
});
const patched = (...bodies: readonly Fields[]): readonly Part[] =>
  bodies.map((body) => edit(JSON.stringify(body), (scene) => patchVolumes(scene, body)));
const annotated = (...each: readonly Fields[]): readonly Part[] =>
  patched(...each.map((annotations) => ({ metadata: { annotations } })));
const recreated = (...each: readonly Fields[]): readonly Part[] =>
  each.map((fields) =>
    edit(`class recreated ${JSON.stringify(fields)}`, async (scene) => {
      // If no volume was requested yet, another class may start that, at a time that depends on
      // the volume controller.
      const claim = scene.claim();
      const isAsked = claim?.metadata.annotations?.[STORAGE_PROVISIONER] !== undefined;
      if (claim?.status?.phase === 'Pending' && !isAsked) return;
      await scene.remove(`${CLASSES}/${scene.className}`);
      await scene.makeClass(scene.className, fields);
    }),
  );

const EDITS: readonly Part[] = [
  ...patched(
    ...['Retain', 'Delete', 'Recycle'].map((policy) => ({
      spec: { persistentVolumeReclaimPolicy: policy },
    })),
    ...[null, [FINALIZER], ['example.com/x'], [FINALIZER, 'example.com/x']].map((finalizers) => ({
      metadata: { finalizers },
    })),
    { spec: { claimRef: { uid: null, resourceVersion: null } } },
    {
      spec: { storageClassName: 'another', mountOptions: ['ro'] },
      metadata: { labels: { a: 'b' } },
    },
  ),
  ...annotated(
    { [`${SECRET}name`]: 'others' },
    { [`${SECRET}name`]: '', [`${SECRET}namespace`]: '' },
    { [`${SECRET}namespace`]: '' },
    { [`${SECRET}namespace`]: null },
    { [`${SECRET}name`]: null, [`${SECRET}namespace`]: null },
    ...[null, 'other.example.com', ''].map((by) => ({ [BY]: by })),
    { [TO]: 'other.example.com' },
    { [BETA_CLASS]: 'gone' },
  ),
  ...recreated(
    { reclaimPolicy: 'Retain', parameters: { x: 'y' } },
    ...PARAMETERS.slice(2).map((parameters) => ({ parameters })),
    { parameters: { [`${P}secret-name`]: 'Bad"', [`${P}secret-namespace`]: 'default' } },
    { provisioner: 'other.example.com' },
  ),
  edit('class gone', (scene) => scene.remove(`${CLASSES}/${scene.className}`)),
  edit('claimRef gone', async (scene) => {
    await patchVolumes(scene, { spec: { claimRef: null } });
    if (scene.claim() !== undefined)
      await soon(scene, () =>
        ownVolumes(scene).every(({ spec }) => at(spec, 'claimRef', 'uid') !== undefined),
      );
  }),
  ...[false, true].map((isFreed) =>
    edit(`volume deleted${isFreed ? ' and freed' : ''}`, async (scene) => {
      for (const { metadata } of ownVolumes(scene))
        await scene.remove(`${VOLUMES}/${metadata.name}`);
      if (isFreed) await patchVolumes(scene, { metadata: { finalizers: null } });
    }),
  ),
  edit('claim deleted', deleteClaim),
  edit('claim recreated', async (scene) => {
    await deleteClaim(scene);
    // A finalizer may keep the old object.
    if (scene.claim() === undefined) await scene.makeClaim('data');
    await soon(scene, () => scene.claim()?.status?.phase === 'Bound');
  }),
  edit('attached', async (scene) => {
    for (const [index, { metadata }] of ownVolumes(scene).entries()) {
      const source = { persistentVolumeName: metadata.name };
      await scene.api.call('POST', ATTACHMENTS, {
        body: {
          apiVersion: 'storage.k8s.io/v1',
          kind: 'VolumeAttachment',
          metadata: { name: `${scene.className}-${index}` },
          spec: { attacher: 'other', nodeName: 'node-1', source },
        },
      });
    }
  }),
  edit('detached', (scene) => scene.remove(`${ATTACHMENTS}/${scene.className}-0`)),
];

async function patchVolumes(scene: Scene, body: Fields): Promise<void> {
  for (const { metadata } of ownVolumes(scene))
    await scene.api.patch('merge', `${VOLUMES}/${metadata.name}`, body);
}

/** Deletes the claim, and waits until the volume controller has noticed. */
async function deleteClaim(scene: Scene): Promise<void> {
  const uid = scene.claim()?.metadata.uid;
  await scene.remove(`${scene.claims}/data`);
  const isBound = (volume: Seen): boolean =>
    volume.status?.phase === 'Bound' && at(volume.spec, 'claimRef', 'uid') === uid;
  await soon(scene, () => scene.claim() === undefined && !scene.volumes().some(isBound));
}

/** Random edits of a volume's objects, whether it exists or not. */
export function editParts(dice: Dice): readonly Part[] {
  return [0.45, 0.4, 0.3, 0.15].flatMap((chance) => dice.maybe(chance, EDITS));
}
