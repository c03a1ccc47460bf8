import { bound, refused, type Scenario } from '../../../harness/differential/scenario.ts';
import { makeAttributesClass, named } from './attributes-classes.ts';
import { makeSnapshot } from '../../../harness/differential/snapshot-objects.ts';

/** A driver that can only create and delete volumes. */
export const fewCapabilities: readonly Scenario[] = [
  { name: 'few-plain', title: 'creates a plain volume', ends: bound },
  {
    name: 'few-snapshot',
    title: 'refuses a restore if the driver has no snapshots',
    prepare: (scene) => makeSnapshot(scene, 'snap'),
    claim: {
      spec: {
        dataSource: { apiGroup: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot', name: 'snap' },
      },
    },
    ends: refused,
  },
  {
    name: 'few-clone',
    title: 'refuses a clone if the driver can’t clone (D-02)',
    prepare: async (scene) => {
      await scene.makeClass(`source-${scene.className}`);
      await scene.makeClaim('source', { storageClassName: `source-${scene.className}` });
      await scene.until(
        'the source is Bound',
        () => scene.claim('source')?.status?.phase === 'Bound',
      );
    },
    claim: { spec: { dataSource: { kind: 'PersistentVolumeClaim', name: 'source' } } },
    ends: refused,
  },
  {
    name: 'few-vac',
    title: 'refuses a VolumeAttributesClass if the driver can’t modify (B-38)',
    prepare: (scene) => makeAttributesClass(scene),
    claim: named,
    ends: refused,
  },
  {
    name: 'few-attached',
    title: 'ignores attachments if the driver does not attach (R-28)',
    ends: bound,
    afterwards: async (scene) => {
      await scene.create('/apis/storage.k8s.io/v1/volumeattachments', {
        apiVersion: 'storage.k8s.io/v1',
        kind: 'VolumeAttachment',
        metadata: { name: scene.className },
        spec: {
          attacher: scene.driver,
          nodeName: 'node-1',
          source: { persistentVolumeName: scene.volume()?.metadata.name },
        },
      });
      await scene.deleteAll();
    },
  },
];
