import {
  all,
  bound,
  calls,
  event,
  ignored,
  refused,
  type Scenario,
  stays,
} from '../../../harness/differential/scenario.ts';
import { status } from '../../../harness/differential/scripted-driver.ts';
import { CLASSES } from '../../../conformance/objects.ts';

const SELECTED = { 'volume.kubernetes.io/selected-node': 'unknown-node' };
const LATE = { volumeBindingMode: 'WaitForFirstConsumer' };
const BETA_CLASS = 'volume.beta.kubernetes.io/storage-class';

/** Which claims are provisioned, and when. */
export const eligibility: readonly Scenario[] = [
  {
    name: 'who-foreign',
    title: 'ignores the claim of another driver (P-01, P-50)',
    class: { provisioner: 'other.example.com' },
    ends: ignored,
  },
  {
    name: 'who-no-class',
    title: 'ignores a claim whose class does not exist (P-49)',
    class: null,
    ends: ignored,
  },
  {
    name: 'who-class-later',
    title: 'creates the volume once the class exists',
    class: null,
    ends: all(ignored, (scene) => scene.makeClass(scene.className), bound),
  },
  {
    name: 'who-classless',
    title: 'ignores a claim without a class',
    claim: { spec: { storageClassName: '' } },
    ends: ignored,
  },
  {
    name: 'who-volume-name',
    title: 'ignores a claim that names a volume (P-06)',
    claim: { spec: { volumeName: 'a-volume-that-is-not-there' } },
    ends: ignored,
  },
  {
    name: 'who-beta-class',
    title: 'finds the class by the beta annotation',
    claim: (scene) => ({
      annotations: { [BETA_CLASS]: scene.className },
      spec: { storageClassName: undefined },
    }),
    ends: bound,
  },
  {
    name: 'who-wrong-annotation',
    title: 'provisions a claim that was annotated for another driver before',
    claim: {
      annotations: {
        'volume.kubernetes.io/storage-provisioner': 'other.example.com',
        'volume.beta.kubernetes.io/storage-provisioner': 'other.example.com',
      },
    },
    ends: bound,
  },
  {
    name: 'who-migrated-elsewhere',
    title: 'provisions a claim of its own whatever it was migrated to (G-03)',
    claim: { annotations: { 'pv.kubernetes.io/migrated-to': 'other.example.com' } },
    ends: bound,
  },
  {
    name: 'who-labels',
    title: 'copies neither labels nor annotations of the claim',
    claim: { annotations: { mine: 'x' } },
    ends: bound,
  },
  { name: 'who-waits', title: 'waits for the first consumer (P-56)', class: LATE, ends: ignored },
  {
    name: 'who-selected',
    title: 'creates the volume once a node is selected (P-58)',
    class: LATE,
    ends: all(
      ignored,
      (scene) => scene.patch(`${scene.claims}/data`, { metadata: { annotations: SELECTED } }),
      bound,
    ),
  },
  {
    name: 'who-selected-before',
    title: 'creates the volume of a claim that has its node from the start',
    class: LATE,
    claim: { annotations: SELECTED },
    ends: bound,
  },
  {
    name: 'who-selected-empty',
    title: 'treats an empty node as none',
    class: LATE,
    claim: { annotations: { 'volume.kubernetes.io/selected-node': '' } },
    ends: ignored,
  },
  {
    name: 'who-selected-exhausted',
    title: 'keeps the selected node when the driver, without topology, is exhausted (E-05)',
    class: LATE,
    claim: { annotations: SELECTED },
    answer: (call) => {
      if (call.method === 'CreateVolume') throw status('ResourceExhausted', 'full');
    },
    ends: all(refused, calls('CreateVolume', 2)),
  },
  {
    name: 'who-selected-immediate',
    title: 'ignores the selected node of a class that binds at once',
    claim: { annotations: SELECTED },
    ends: bound,
  },
  {
    name: 'who-terminating',
    title: 'provisions a claim that is being deleted',
    class: LATE,
    claim: { finalizers: ['example.com/other'] },
    ends: async (scene) => {
      await ignored(scene);
      await scene.remove(`${scene.claims}/data`);
      await scene.patch(`${scene.claims}/data`, { metadata: { annotations: SELECTED } });
      await bound(scene);
    },
    afterwards: stays,
  },
  {
    name: 'who-terminating-tried',
    title: 'continues if the claim is being deleted during CreateVolume',
    claim: { finalizers: ['example.com/other'] },
    answer: (call, scene) => {
      if (call.method === 'CreateVolume' && !scene.happened.has('deleted'))
        throw status('Unavailable', 'come again');
    },
    ends: async (scene) => {
      await calls('CreateVolume', 1)(scene);
      await scene.remove(`${scene.claims}/data`);
      await scene.until(
        'the claim is being deleted',
        () => scene.claim()?.metadata.deletionTimestamp !== undefined,
      );
      scene.happened.add('deleted');
      await scene.until('there is a volume', () => scene.volume() !== undefined);
    },
    afterwards: stays,
  },
  {
    name: 'who-gone-running',
    title: 'creates and deletes the volume of a claim that vanished during CreateVolume (R-38)',
    answer: (call, scene) => {
      if (call.method === 'CreateVolume' && !scene.happened.has('gone'))
        throw status('Unavailable', 'come again');
    },
    ends: async (scene) => {
      await calls('CreateVolume', 1)(scene);
      await scene.remove(`${scene.claims}/data`);
      await scene.until('the claim is gone', () => scene.claim() === undefined);
      scene.happened.add('gone');
      await calls('DeleteVolume', 1)(scene);
      await scene.until('no volume is left', () => scene.volumes().length === 0);
    },
  },
  {
    name: 'who-gone-refused',
    title: 'stops retrying for a claim that was deleted after the driver had refused it',
    answer: (call, scene) => {
      if (call.method === 'CreateVolume' && !scene.happened.has('gone'))
        throw status('Internal', 'no');
    },
    ends: async (scene) => {
      await refused(scene);
      await scene.remove(`${scene.claims}/data`);
      await scene.until('the claim is gone', () => scene.claim() === undefined);
      scene.happened.add('gone');
      await ignored(scene);
    },
  },
  {
    name: 'who-class-gone',
    title: 'stops retrying for a class that was deleted after the driver had refused',
    answer: (call, scene) => {
      if (call.method === 'CreateVolume' && !scene.happened.has('gone'))
        throw status('Internal', 'no');
    },
    ends: async (scene) => {
      await refused(scene);
      await scene.remove(`${CLASSES}/${scene.className}`);
      await ignored(scene);
      scene.happened.add('gone');
      await ignored(scene);
    },
    afterwards: stays,
  },
  {
    name: 'who-populator',
    title: 'leaves other kinds of sources to a populator, with an event (B-27)',
    claim: {
      spec: { dataSourceRef: { apiGroup: 'my.example.io', kind: 'MyPopulator', name: 'x' } },
    },
    ends: event('Provisioning', 'Assuming an external populator'),
  },
  {
    name: 'who-populator-core',
    title: 'leaves a source of the core group that is no claim to a populator',
    claim: {
      spec: {
        dataSourceRef: { apiGroup: 'my.example.io', kind: 'persistentvolumeclaim', name: 'x' },
      },
    },
    ends: event('Provisioning', 'Assuming an external populator'),
  },
  {
    name: 'who-volume-there',
    title: 'requests no volume if a PersistentVolume of that name exists (P-02, R-01)',
    class: LATE,
    ends: async (scene) => {
      await ignored(scene);
      const elsewhere = { driver: 'other.example.com', volumeHandle: 'x' };
      const spec = {
        csi: elsewhere,
        storageClassName: `other-${scene.className}`,
        persistentVolumeReclaimPolicy: 'Retain',
      };
      await scene.makeVolume(`pvc-${scene.uidOf() ?? ''}`, { spec });
      await ignored(scene);
      await scene.patch(`${scene.claims}/data`, { metadata: { annotations: SELECTED } });
      await ignored(scene);
    },
    afterwards: stays,
  },
  {
    name: 'who-many',
    title: 'gives two claims of one class a volume each',
    ends: all(
      (scene) => scene.makeClaim('second'),
      bound,
      (scene) =>
        scene.until(
          'the second claim is Bound',
          () => scene.claim('second')?.status?.phase === 'Bound',
        ),
    ),
  },
];
