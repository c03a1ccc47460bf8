import { bound, refused, type Scenario } from '../../../harness/differential/scenario.ts';
import { makeAttributesClass, named } from './attributes-classes.ts';
import { makeSnapshot } from '../../../harness/differential/snapshot-objects.ts';

/** A driver that makes and deletes volumes and does nothing else (spec 02 §7.2, 03 §9). */
export const fewCapabilities: readonly Scenario[] = [
  { name: 'few-plain', title: 'makes a plain volume', ends: bound },
  {
    name: 'few-snapshot',
    title: 'refuses a restore where the driver takes no snapshots',
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
    title: 'refuses a clone where the driver makes none (D-02)',
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
    title: 'refuses a VolumeAttributesClass where the driver modifies nothing (B-38)',
    prepare: (scene) => makeAttributesClass(scene),
    claim: named,
    ends: refused,
  },
  {
    name: 'few-attached',
    title: 'does not look for attachments where the driver attaches nothing (R-28)',
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
