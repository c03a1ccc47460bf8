import { VOLUMES, claim } from '../../../../conformance/objects.ts';
import type { Fields } from '../../../../conformance/connection.ts';
import {
  contentPath,
  makeSnapshot,
  type SnapshotChanges,
  snapshotPath,
} from '../../../../harness/differential/snapshot-objects.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import type { Dice } from './dice.ts';
import type { Part } from './part.ts';

const SNAP = { apiGroup: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot', name: 'snap' };
const ALLOW = 'snapshot.storage.kubernetes.io/allow-volume-mode-change';
const OURS = 'provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection';
const SNAPSHOTS: readonly SnapshotChanges[] = [
  {},
  {},
  { status: { restoreSize: '0' } },
  { status: { restoreSize: '500m' } },
  { status: { restoreSize: '1e9' } },
  { status: { restoreSize: '1073741825' } },
  { status: { restoreSize: null } },
  { status: { readyToUse: false } },
  { status: { readyToUse: null } },
  { status: null },
  { content: null },
  { contentStatus: null },
  { contentStatus: { readyToUse: false } },
  { contentStatus: { snapshotHandle: 'é "x"\n' } },
  { contentStatus: { restoreSize: 5 } },
  { content: { driver: 'other.example.com' } },
  { content: { sourceVolumeMode: 'Block' } },
  { content: { sourceVolumeMode: 'Odd' } },
  { status: { error: { message: 'failed', time: '2020-01-01T00:00:00Z' } } },
  { status: { boundVolumeSnapshotContentName: 'another' } },
  { metadata: { finalizers: ['example.com/other'] } },
  { metadata: { finalizers: [OURS] } },
  { metadata: { annotations: { [ALLOW]: 'true' } } },
  ...['true', ' true', 'TRUE', 'tRue', '1', '', 'yes', 'quo"te', 'é\n'].map((allow) => ({
    content: { sourceVolumeMode: 'Block' },
    contentMetadata: { annotations: { [ALLOW]: allow } },
  })),
];

function restored(dice: Dice): Part {
  const changes = dice.one(SNAPSHOTS);
  const isDeleted = dice.hits(0.15);
  const isRef = dice.hits(0.3);
  return {
    label:
      `restore ${JSON.stringify(changes)}${isDeleted ? ', deleted' : ''}` +
      (isRef ? ' by dataSourceRef' : ''),
    spec: isRef ? { dataSourceRef: SNAP } : { dataSource: SNAP },
    prepare: async (scene) => {
      await makeSnapshot(scene, 'snap', changes);
      if (isDeleted) await scene.remove(snapshotPath(scene, 'snap'));
    },
    ...(dice.hits(0.2)
      ? {
          edit: (scene) =>
            scene.api.patch('merge', contentPath(scene, 'snap'), {
              metadata: { annotations: { [ALLOW]: 'true' } },
            }),
        }
      : {}),
  };
}

interface Source {
  readonly label: string;
  readonly spec?: Fields;
  readonly volume?: Fields;
  readonly after?: (scene: Scene) => Promise<unknown>;
}
const CLAIM = { kind: 'PersistentVolumeClaim', name: 'source' };
const SOURCES: readonly Source[] = [
  { label: 'a claim' },
  { label: 'a claim' },
  { label: 'a claim of Block', spec: { volumeMode: 'Block' } },
  { label: 'a larger claim', spec: { resources: { requests: { storage: '2Gi' } } } },
  { label: 'a tiny claim', spec: { resources: { requests: { storage: '100m' } } } },
  { label: 'a claim of a static volume', volume: {} },
  { label: 'a claim of a static volume that is larger', volume: { capacity: { storage: '5Gi' } } },
  {
    label: 'a claim of a static Block volume',
    spec: { volumeMode: 'Block' },
    volume: { volumeMode: 'Block' },
  },
  {
    label: 'a claim of another driver',
    volume: { csi: { driver: 'other.example.com', volumeHandle: 'foreign' } },
  },
  { label: 'a claim that is deleted', after: (scene) => scene.remove(`${scene.claims}/source`) },
  {
    label: 'a claim whose volume is deleted',
    after: (scene) => scene.remove(`${VOLUMES}/${scene.volume('source')?.metadata.name ?? ''}`),
  },
];

function cloned(dice: Dice): Part {
  const source = dice.one(SOURCES);
  const isRef = dice.hits(0.3);
  return {
    label: `clone of ${source.label}${isRef ? ' by dataSourceRef' : ''}`,
    spec: isRef ? { dataSourceRef: CLAIM } : { dataSource: CLAIM },
    prepare: async (scene) => {
      const storageClassName = `plain-${scene.className}`;
      await scene.makeClass(storageClassName);
      const name = `static-${scene.className}`;
      if (source.volume !== undefined)
        await scene.makeVolume(name, {
          spec: {
            storageClassName,
            claimRef: { namespace: scene.namespace, name: 'source' },
            persistentVolumeReclaimPolicy: 'Retain',
            ...source.volume,
          },
        });
      await scene.create(
        scene.claims,
        claim('source', {
          spec: {
            storageClassName,
            ...(source.volume === undefined ? {} : { volumeName: name }),
            ...source.spec,
          },
        }),
      );
      await scene.until(
        'the source is Bound',
        () => scene.claim('source')?.status?.phase === 'Bound',
      );
      await source.after?.(scene);
      await scene.marker();
    },
  };
}

const ref = (dataSourceRef: Fields): Part => ({
  label: JSON.stringify(dataSourceRef),
  spec: { dataSourceRef },
});
const OTHERS: readonly Part[] = [
  ref({ apiGroup: 'example.com', kind: 'Backup', name: 'x' }),
  ref({ kind: 'ConfigMap', name: 'x', apiGroup: 'other.io' }),
  ref({ apiGroup: 'snapshot.storage.k8s.io', kind: 'volumesnapshot', name: 'x' }),
  ref({ apiGroup: 'other.io', kind: 'PersistentVolumeClaim', name: 'x' }),
  ref({ apiGroup: 'other.io', kind: 'VolumeSnapshot', name: 'x' }),
  {
    label: 'dataSource of another kind',
    spec: { dataSource: { apiGroup: 'a.b', kind: 'Backup', name: 'x' } },
  },
  ref({ kind: 'PersistentVolumeClaim', name: 'not-there' }),
  ref({ ...SNAP, name: 'Not.A_Name' }),
  {
    label: 'both',
    spec: {
      dataSource: { kind: 'PersistentVolumeClaim', name: 'x' },
      dataSourceRef: { kind: 'PersistentVolumeClaim', name: 'x' },
    },
  },
  ref({ ...SNAP, namespace: 'elsewhere' }),
];

/** Random content sources. */
export function sourceParts(dice: Dice): readonly Part[] {
  const roll = dice.next();
  if (roll < 0.2) return [restored(dice)];
  if (roll < 0.35) return [cloned(dice)];
  if (roll < 0.42) return [dice.one(OTHERS)];
  return [];
}
