import { STORAGE_PROVISIONER } from '#src/kube/keys.ts';
import { at, type Fields } from '../../../../conformance/connection.ts';
import { CLASSES, VOLUMES } from '../../../../conformance/objects.ts';
import type { Seen } from '../../../../harness/differential/observer.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import type { Dice } from './dice.ts';
import { type Part, soon } from './part.ts';

const P = 'volume.kubernetes.io/provisioner-deletion-secret-';
const FINALIZER = 'external-provisioner.volume.kubernetes.io/finalizer';

/** The volumes of claims that are not sources of clones. */
const ownVolumes = (scene: Scene) =>
  scene.volumes().filter(({ spec }) => at(spec, 'claimRef', 'name') !== 'source');
const edit = (label: string, act: (scene: Scene) => Promise<unknown>): Part => ({
  label,
  edit: act,
});
const ofVolume = (label: string, body: Fields): Part =>
  edit(label, (scene) => patchVolumes(scene, body));
const annotated = (label: string, annotations: Fields): Part =>
  ofVolume(label, { metadata: { annotations } });
const recreateClass =
  (fields: Fields) =>
  async (scene: Scene): Promise<void> => {
    // If no volume was requested yet, another class may start that, at a time that depends on the
    // volume controller.
    const claim = scene.claim();
    if (
      claim?.status?.phase === 'Pending' &&
      claim.metadata.annotations?.[STORAGE_PROVISIONER] === undefined
    )
      return;
    await scene.remove(`${CLASSES}/${scene.className}`);
    await scene.makeClass(scene.className, fields);
  };
const ATTACHMENTS = '/apis/storage.k8s.io/v1/volumeattachments';

const EDITS: readonly Part[] = [
  ofVolume('policy Retain', { spec: { persistentVolumeReclaimPolicy: 'Retain' } }),
  ofVolume('policy Delete', { spec: { persistentVolumeReclaimPolicy: 'Delete' } }),
  ofVolume('policy Recycle', { spec: { persistentVolumeReclaimPolicy: 'Recycle' } }),
  ofVolume('finalizers gone', { metadata: { finalizers: null } }),
  ofVolume('finalizer only ours', { metadata: { finalizers: [FINALIZER] } }),
  ofVolume('finalizer of others', { metadata: { finalizers: ['example.com/other'] } }),
  ofVolume('finalizers doubled', {
    metadata: { finalizers: [FINALIZER, 'kubernetes.io/pv-protection', 'example.com/x'] },
  }),
  edit('claimRef gone', async (scene) => {
    await patchVolumes(scene, { spec: { claimRef: null } });
    if (scene.claim() !== undefined)
      await soon(scene, () =>
        ownVolumes(scene).every(({ spec }) => at(spec, 'claimRef', 'uid') !== undefined),
      );
  }),
  ofVolume('claimRef without uid', { spec: { claimRef: { uid: null, resourceVersion: null } } }),
  ofVolume('labels', { metadata: { labels: { a: 'b' } } }),
  ofVolume('class name', { spec: { storageClassName: 'another' } }),
  ofVolume('mount options', { spec: { mountOptions: ['ro'] } }),
  annotated('secret name other', { [`${P}name`]: 'others' }),
  annotated('secret empty', { [`${P}name`]: '', [`${P}namespace`]: '' }),
  annotated('secret half empty', { [`${P}namespace`]: '' }),
  annotated('secret half gone', { [`${P}namespace`]: null }),
  annotated('secret annotations gone', { [`${P}name`]: null, [`${P}namespace`]: null }),
  annotated('provisioned-by gone', { 'pv.kubernetes.io/provisioned-by': null }),
  annotated('provisioned-by other', { 'pv.kubernetes.io/provisioned-by': 'other.example.com' }),
  annotated('provisioned-by empty', { 'pv.kubernetes.io/provisioned-by': '' }),
  annotated('migrated-to', { 'pv.kubernetes.io/migrated-to': 'other.example.com' }),
  annotated('beta class', { 'volume.beta.kubernetes.io/storage-class': 'gone' }),
  edit('class gone', (scene) => scene.remove(`${CLASSES}/${scene.className}`)),
  edit('class recreated', recreateClass({ reclaimPolicy: 'Retain', parameters: { x: 'y' } })),
  edit(
    'class names a secret by annotation',
    recreateClass({
      parameters: {
        'csi.storage.k8s.io/provisioner-secret-name': "${pvc.annotations['missing']}",
        'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
      },
    }),
  ),
  edit(
    'class names a wrong secret',
    recreateClass({
      parameters: {
        'csi.storage.k8s.io/secret-name': 'Bad"',
        'csi.storage.k8s.io/secret-namespace': 'default',
      },
    }),
  ),
  edit(
    'class names half a secret',
    recreateClass({ parameters: { csiProvisionerSecretName: 'x' } }),
  ),
  edit('class of another', recreateClass({ provisioner: 'other.example.com' })),
  edit('volume deleted', async (scene) => {
    for (const { metadata } of ownVolumes(scene)) await scene.remove(`${VOLUMES}/${metadata.name}`);
  }),
  edit('volume deleted and freed', async (scene) => {
    for (const { metadata } of ownVolumes(scene)) {
      await scene.remove(`${VOLUMES}/${metadata.name}`);
      await scene.api.patch('merge', `${VOLUMES}/${metadata.name}`, {
        metadata: { finalizers: null },
      });
    }
  }),
  edit('claim deleted', deleteClaim),
  edit('claim recreated', async (scene) => {
    await deleteClaim(scene);
    // A finalizer may keep the old object.
    if (scene.claim() === undefined) await scene.makeClaim('data');
    await soon(scene, () => scene.claim()?.status?.phase === 'Bound');
  }),
  edit('attached', async (scene) => {
    for (const [index, { metadata }] of ownVolumes(scene).entries()) {
      const spec = {
        attacher: 'other',
        nodeName: 'node-1',
        source: { persistentVolumeName: metadata.name },
      };
      await scene.api.call('POST', ATTACHMENTS, {
        body: {
          apiVersion: 'storage.k8s.io/v1',
          kind: 'VolumeAttachment',
          metadata: { name: `${scene.className}-${index}` },
          spec,
        },
      });
    }
  }),
  edit('detached', async (scene) => {
    await scene.remove(`${ATTACHMENTS}/${scene.className}-0`);
  }),
  edit('claim labelled', (scene) =>
    scene.api.patch('merge', `${scene.claims}/data`, { metadata: { labels: { x: 'y' } } }),
  ),
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
  return [
    ...dice.maybe(0.45, EDITS),
    ...dice.maybe(0.4, EDITS),
    ...dice.maybe(0.3, EDITS),
    ...dice.maybe(0.15, EDITS),
  ];
}
