import type { Scene } from '../../../harness/differential/scene.ts';
import { VOLUMES } from '../../../conformance/objects.ts';
import type { Fields } from '../../../conformance/connection.ts';
import {
  bound,
  event,
  ignored,
  released,
  scenario,
  type Scenario,
} from '../../../harness/differential/scenario.ts';
import { fails } from '../../../harness/differential/scripted-driver.ts';

const FINALIZER = 'external-provisioner.volume.kubernetes.io/finalizer';
const ATTACHMENTS = '/apis/storage.k8s.io/v1/volumeattachments';
const P = 'csi.storage.k8s.io/';
const DELETION_SECRET = 'volume.kubernetes.io/provisioner-deletion-secret-';

/** Provisioned volumes: finalizer, policy, deletion and its secrets. */
export const deletion: readonly Scenario[] = [
  scenario('del-retain', 'keeps a volume whose policy is Retain without finalizer (P-16, P-33)', {
    class: { reclaimPolicy: 'Retain' },
    ends: async (scene) => {
      await bound(scene);
      await finalizer(scene, false);
    },
    afterwards: async (scene) => {
      await release(scene);
      await ignored(scene);
    },
  }),
  scenario('del-retain-then-delete', 'deletes a retained volume when its policy changes (R-23)', {
    class: { reclaimPolicy: 'Retain' },
    afterwards: async (scene) => {
      await release(scene);
      await policy(scene, 'Delete');
      await scene.until('the volume is gone', () => scene.volumes().length === 0);
    },
  }),
  scenario('del-flips', 'removes and adds the finalizer as the policy changes (R-23)', {
    afterwards: async (scene) => {
      await policy(scene, 'Retain');
      await finalizer(scene, false);
      await policy(scene, 'Delete');
      await finalizer(scene, true);
      await scene.deleteAll();
    },
  }),
  scenario('del-finalizer-among-others', 'removes only its own finalizer', {
    afterwards: async (scene) => {
      const volume = scene.volume();
      const path = `${VOLUMES}/${volume?.metadata.name ?? ''}`;
      await scene.patch(path, {
        metadata: {
          finalizers: ['example.com/a', ...(volume?.metadata.finalizers ?? []), 'example.com/b'],
        },
      });
      await policy(scene, 'Retain');
      await finalizer(scene, false);
    },
  }),
  scenario('del-retain-while-failing', 'keeps a Released volume whose policy becomes Retain', {
    answer: fails('Internal', 'busy', 'DeleteVolume'),
    afterwards: async (scene) => {
      await scene.remove(`${scene.claims}/data`);
      await event('VolumeFailedDelete', 'busy')(scene);
      await policy(scene, 'Retain');
      await finalizer(scene, false);
      await ignored(scene);
    },
  }),
  scenario(
    'del-volume-first-then-claim',
    'deletes a volume after its deleted PV’s claim (P-78, P-79)',
    {
      afterwards: async (scene) => {
        await scene.remove(`${VOLUMES}/${scene.volume()?.metadata.name ?? ''}`);
        await scene.until(
          'the volume is being deleted',
          () => scene.volume()?.metadata.deletionTimestamp !== undefined,
        );
        await ignored(scene);
        scene.notes['while the claim exists'] = scene.calls('DeleteVolume').length;
        await scene.deleteAll();
      },
    },
  ),
  scenario('del-attached', 'waits until the volume is detached, with an event (F-05)', {
    afterwards: async (scene) => {
      await attach(scene);
      await scene.remove(`${scene.claims}/data`);
      await event('VolumeFailedDelete', 'still attached')(scene);
      await scene.remove(`${ATTACHMENTS}/${scene.className}`);
      await scene.until('the volume is gone', () => scene.volumes().length === 0);
    },
  }),
  scenario('del-attached-elsewhere', 'ignores the attachment of another volume (F-08)', {
    afterwards: async (scene) => {
      await attach(scene, 'another-volume');
      await scene.deleteAll();
    },
  }),
  ...secretScenarios(),
];

function secretScenarios(): readonly Scenario[] {
  const withSecret = (scene: Scene): Fields => ({
    parameters: {
      [`${P}provisioner-secret-name`]: 'creds',
      [`${P}provisioner-secret-namespace`]: scene.namespace,
    },
  });
  const withCreds = (
    name: string,
    title: string,
    afterwards: (scene: Scene) => Promise<unknown>,
  ): Scenario =>
    scenario(name, title, {
      class: withSecret,
      prepare: async (scene) => {
        await scene.makeSecret('creds', { user: 'anna' });
        await scene.makeSecret('others', { user: 'berta' });
      },
      afterwards,
    });
  const annotate = (scene: Scene, annotations: Fields) =>
    scene.patch(`${VOLUMES}/${scene.volume()?.metadata.name ?? ''}`, { metadata: { annotations } });
  return [
    withCreds(
      'del-secret-class-gone',
      'deletes with the annotated secret without class (F-13)',
      async (scene) => {
        await scene.remove(`/apis/storage.k8s.io/v1/storageclasses/${scene.className}`);
        await scene.deleteAll();
      },
    ),
    withCreds(
      'del-secret-other',
      'deletes with the annotated secret, not the class’s (F-14)',
      async (scene) => {
        await annotate(scene, { [`${DELETION_SECRET}name`]: 'others' });
        await scene.deleteAll();
      },
    ),
    withCreds('del-secret-gone', 'deletes although its secret is gone (F-15)', async (scene) => {
      await scene.remove(`/api/v1/namespaces/${scene.namespace}/secrets/creds`);
      await scene.remove(`${scene.claims}/data`);
      await scene.until(
        'it is decided',
        () => scene.calls('DeleteVolume').length > 0 || scene.hasEvent('VolumeFailedDelete'),
      );
    }),
    withCreds(
      'del-secret-empty',
      'deletes without secrets by empty annotations (F-10)',
      async (scene) => {
        await annotate(scene, {
          [`${DELETION_SECRET}name`]: '',
          [`${DELETION_SECRET}namespace`]: '',
        });
        await scene.deleteAll();
      },
    ),
    withCreds(
      'del-secret-half-empty',
      'deletes without secrets by one empty annotation (R-20)',
      async (scene) => {
        await annotate(scene, { [`${DELETION_SECRET}name`]: '' });
        await scene.deleteAll();
      },
    ),
    withCreds(
      'del-secret-half-noted',
      'uses the class if an annotation is missing (F-16)',
      async (scene) => {
        await annotate(scene, { [`${DELETION_SECRET}name`]: null });
        await scene.deleteAll();
      },
    ),
    withCreds('del-secret-unnoted', 'uses the class if there are no annotations', async (scene) => {
      await annotate(scene, {
        [`${DELETION_SECRET}name`]: null,
        [`${DELETION_SECRET}namespace`]: null,
      });
      await scene.deleteAll();
    }),
    withCreds(
      'del-secret-unnoted-no-class',
      'deletes without secrets, annotations and class',
      async (scene) => {
        await annotate(scene, {
          [`${DELETION_SECRET}name`]: null,
          [`${DELETION_SECRET}namespace`]: null,
        });
        await scene.remove(`/apis/storage.k8s.io/v1/storageclasses/${scene.className}`);
        await ignored(scene);
        await scene.deleteAll();
      },
    ),
    scenario('del-secret-unresolved', 'deletes nothing if the secret needs a claim (F-03, R-21)', {
      class: {
        parameters: {
          [`${P}provisioner-secret-name`]: "${pvc.annotations['which']}",
          [`${P}provisioner-secret-namespace`]: '${pvc.namespace}',
        },
      },
      claim: { annotations: { which: 'creds' } },
      prepare: (scene) => scene.makeSecret('creds', { user: 'anna' }),
      afterwards: async (scene) => {
        await annotate(scene, {
          [`${DELETION_SECRET}name`]: null,
          [`${DELETION_SECRET}namespace`]: null,
        });
        await scene.remove(`${scene.claims}/data`);
        await event('VolumeFailedDelete')(scene);
      },
    }),
  ];
}

/** Deletes the claim, and waits until its volume is Released. */
export async function release(scene: Scene): Promise<void> {
  await scene.remove(`${scene.claims}/data`);
  await released(scene);
}

async function policy(scene: Scene, persistentVolumeReclaimPolicy: string): Promise<void> {
  for (const { metadata } of scene.volumes())
    await scene.patch(`${VOLUMES}/${metadata.name}`, { spec: { persistentVolumeReclaimPolicy } });
}

/** Waits until the volume has its finalizer, or no longer has it. */
export async function finalizer(scene: Scene, isThere: boolean): Promise<void> {
  const isAsExpected = (): boolean =>
    scene
      .volumes()
      .every((volume) => (volume.metadata.finalizers ?? []).includes(FINALIZER) === isThere);
  await scene.until(`the volume ${isThere ? 'has' : 'has not'} its finalizer`, isAsExpected);
}

async function attach(
  scene: Scene,
  persistentVolumeName = scene.volume()?.metadata.name ?? '',
): Promise<void> {
  await scene.create(ATTACHMENTS, {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'VolumeAttachment',
    metadata: { name: scene.className },
    spec: { attacher: scene.driver, nodeName: 'node-1', source: { persistentVolumeName } },
  });
}
