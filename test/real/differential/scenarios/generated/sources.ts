import type { Fields } from '../../../../conformance/connection.ts';
import { VOLUMES } from '../../../../conformance/objects.ts';
import {
  contentPath,
  makeSnapshot,
  type SnapshotChanges,
  snapshotPath,
} from '../../../../harness/differential/snapshot-objects.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import type { Dice, Part } from './part.ts';

const SNAP = { apiGroup: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot', name: 'snap' };
const ALLOW = 'snapshot.storage.kubernetes.io/allow-volume-mode-change';
const OURS = 'provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection';
const SNAPSHOTS: readonly SnapshotChanges[] = [
  {},
  {},
  ...['0', '500m', '1e9', '1073741825', null].map((restoreSize) => ({ status: { restoreSize } })),
  ...[false, null].map((readyToUse) => ({ status: { readyToUse } })),
  { status: null },
  { status: { error: { message: 'failed', time: '2020-01-01T00:00:00Z' } } },
  { status: { boundVolumeSnapshotContentName: 'another' } },
  { content: null },
  ...[{ driver: 'other.example.com' }, { sourceVolumeMode: 'Odd' }].map((content) => ({ content })),
  ...[{ readyToUse: false }, { snapshotHandle: 'é "x"\n' }, { restoreSize: 5 }, null].map(
    (contentStatus) => ({ contentStatus }),
  ),
  { metadata: { finalizers: [OURS, 'example.com/other'], annotations: { [ALLOW]: 'true' } } },
  ...[undefined, 'true', ' true', 'TRUE', 'tRue', '1', '', 'quo"te', 'é\n'].map((allow) => ({
    content: { sourceVolumeMode: 'Block' },
    contentMetadata: { annotations: { [ALLOW]: allow } },
  })),
];

function restored(dice: Dice): Part {
  const changes = dice.one(SNAPSHOTS);
  const isDeleted = dice.hits(0.15);
  const field = dice.hits(0.3) ? 'dataSourceRef' : 'dataSource';
  const annotations = { [ALLOW]: 'true' };
  return {
    label: `restore ${JSON.stringify(changes)}${isDeleted ? ', deleted,' : ''} by ${field}`,
    spec: { [field]: SNAP },
    prepare: async (scene) => {
      await makeSnapshot(scene, 'snap', changes);
      if (isDeleted) await scene.remove(snapshotPath(scene, 'snap'));
    },
    ...(dice.hits(0.2)
      ? {
          edit: (scene: Scene) =>
            scene.api.patch('merge', contentPath(scene, 'snap'), { metadata: { annotations } }),
        }
      : {}),
  };
}

interface Source {
  readonly spec?: Fields;
  /** Of a static volume to which the source is bound. */
  readonly volume?: Fields;
  readonly after?: (scene: Scene) => Promise<unknown>;
}
const SOURCES: Readonly<Record<string, Source>> = {
  'a claim': {},
  'a claim of Block': { spec: { volumeMode: 'Block' } },
  'a larger claim': { spec: { resources: { requests: { storage: '2Gi' } } } },
  'a tiny claim': { spec: { resources: { requests: { storage: '100m' } } } },
  'a claim of a static volume that is larger': { volume: { capacity: { storage: '5Gi' } } },
  'a claim of a static Block volume': {
    spec: { volumeMode: 'Block' },
    volume: { volumeMode: 'Block' },
  },
  'a claim of another driver': {
    volume: { csi: { driver: 'other.example.com', volumeHandle: 'foreign' } },
  },
  'a claim that is deleted': { after: (scene) => scene.remove(`${scene.claims}/source`) },
  'a claim whose volume is deleted': {
    after: (scene) => scene.remove(`${VOLUMES}/${scene.volume('source')?.metadata.name ?? ''}`),
  },
};

function cloned(dice: Dice): Part {
  const label = dice.one(Object.keys(SOURCES));
  const { spec, volume, after } = SOURCES[label] ?? {};
  const field = dice.hits(0.3) ? 'dataSourceRef' : 'dataSource';
  return {
    label: `clone of ${label} by ${field}`,
    spec: { [field]: { kind: 'PersistentVolumeClaim', name: 'source' } },
    prepare: async (scene) => {
      const storageClassName = `plain-${scene.className}`;
      await scene.makeClass(storageClassName);
      const volumeName = `static-${scene.className}`;
      const claimRef = { namespace: scene.namespace, name: 'source' };
      const kept = { storageClassName, claimRef, persistentVolumeReclaimPolicy: 'Retain' };
      if (volume !== undefined)
        await scene.makeVolume(volumeName, { spec: { ...kept, ...volume } });
      const bound = volume === undefined ? {} : { volumeName };
      await scene.makeClaim('source', { storageClassName, ...bound, ...spec });
      const isBound = () => scene.claim('source')?.status?.phase === 'Bound';
      await scene.until('the source is Bound', isBound);
      await after?.(scene);
      await scene.marker();
    },
  };
}

const OTHERS: readonly Part[] = [
  { dataSource: { apiGroup: 'a.b', kind: 'Backup', name: 'x' } },
  ...['dataSource', 'dataSourceRef'].map((field) => ({
    [field]: { kind: 'PersistentVolumeClaim', name: 'not-there' },
  })),
  ...[
    { apiGroup: 'other.io', kind: 'ConfigMap', name: 'x' },
    { apiGroup: 'snapshot.storage.k8s.io', kind: 'volumesnapshot', name: 'x' },
    { apiGroup: 'other.io', kind: 'PersistentVolumeClaim', name: 'x' },
    { apiGroup: 'other.io', kind: 'VolumeSnapshot', name: 'x' },
    { ...SNAP, name: 'Not.A_Name' },
    { ...SNAP, namespace: 'elsewhere' },
  ].map((dataSourceRef) => ({ dataSourceRef })),
].map((spec) => ({ label: JSON.stringify(spec), spec }));

/** Random content sources. */
export function sourceParts(dice: Dice): readonly Part[] {
  const roll = dice.next();
  if (roll < 0.2) return [restored(dice)];
  if (roll < 0.35) return [cloned(dice)];
  return roll < 0.42 ? [dice.one(OTHERS)] : [];
}
