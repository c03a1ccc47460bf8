import { makeAttributesClass, named } from './attributes-classes.ts';
import { makeSnapshot } from '../../../harness/differential/snapshot-objects.ts';
import { refused, scenario, type Scenario } from '../../../harness/differential/scenario.ts';

/** A driver that can only create and delete volumes. */
export const fewCapabilities: readonly Scenario[] = [
  scenario('few-plain', 'creates a plain volume'),
  scenario('few-snapshot', 'refuses a restore if the driver has no snapshots', {
    prepare: (scene) => makeSnapshot(scene, 'snap'),
    claim: {
      spec: {
        dataSource: { apiGroup: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot', name: 'snap' },
      },
    },
    ends: refused,
  }),
  scenario('few-clone', 'refuses a clone if the driver can’t clone (D-02)', {
    prepare: async (scene) => {
      await scene.makeClass(`source-${scene.className}`);
      await scene.makeClaim('source', { storageClassName: `source-${scene.className}` });
      await scene.untilBound('source');
    },
    claim: { spec: { dataSource: { kind: 'PersistentVolumeClaim', name: 'source' } } },
    ends: refused,
  }),
  scenario('few-vac', 'refuses a VolumeAttributesClass if the driver can’t modify (B-38)', {
    prepare: (scene) => makeAttributesClass(scene),
    claim: named,
    ends: refused,
  }),
  scenario('few-attached', 'ignores attachments if the driver does not attach (R-28)', {
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
  }),
];
