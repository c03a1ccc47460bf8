import { CLASSES } from '../../../conformance/objects.ts';
import {
  all,
  bound,
  calls,
  event,
  ignored,
  refused,
  scenario,
  type Scenario,
  stays,
} from '../../../harness/differential/scenario.ts';
import { fails, status } from '../../../harness/differential/scripted-driver.ts';

const SELECTED = { 'volume.kubernetes.io/selected-node': 'unknown-node' };
const LATE = { volumeBindingMode: 'WaitForFirstConsumer' };
const BETA_CLASS = 'volume.beta.kubernetes.io/storage-class';

/** Which claims are provisioned, and when. */
export const eligibility: readonly Scenario[] = [
  scenario('who-foreign', 'ignores the claim of another driver (P-01, P-50)', {
    class: { provisioner: 'other.example.com' },
    ends: ignored,
  }),
  scenario('who-class-later', 'creates the volume once the class exists (P-49)', {
    class: null,
    ends: all(ignored, (scene) => scene.makeClass(scene.className), bound),
  }),
  scenario('who-classless', 'ignores a claim without a class', {
    claim: { spec: { storageClassName: '' } },
    ends: ignored,
  }),
  scenario('who-volume-name', 'ignores a claim that names a volume (P-06)', {
    claim: { spec: { volumeName: 'a-volume-that-is-not-there' } },
    ends: ignored,
  }),
  scenario('who-beta-class', 'finds the class by the beta annotation', {
    claim: (scene) => ({
      annotations: { [BETA_CLASS]: scene.className },
      spec: { storageClassName: undefined },
    }),
  }),
  scenario('who-wrong-annotation', 'provisions a claim that another driver’s annotations name', {
    claim: {
      annotations: {
        'volume.kubernetes.io/storage-provisioner': 'other.example.com',
        'volume.beta.kubernetes.io/storage-provisioner': 'other.example.com',
      },
    },
  }),
  scenario('who-migrated-elsewhere', 'provisions its claim whatever it was migrated to (G-03)', {
    claim: { annotations: { 'pv.kubernetes.io/migrated-to': 'other.example.com' } },
  }),
  scenario('who-labels', 'copies neither labels nor annotations of the claim', {
    claim: { annotations: { mine: 'x' } },
  }),
  scenario('who-selected', 'creates the volume once a node is selected (P-56, P-58)', {
    class: LATE,
    ends: all(
      ignored,
      (scene) => scene.patch(`${scene.claims}/data`, { metadata: { annotations: SELECTED } }),
      bound,
    ),
  }),
  scenario('who-selected-before', 'creates the volume of a claim with a node from the start', {
    class: LATE,
    claim: { annotations: SELECTED },
  }),
  scenario('who-selected-empty', 'treats an empty node as none', {
    class: LATE,
    claim: { annotations: { 'volume.kubernetes.io/selected-node': '' } },
    ends: ignored,
  }),
  scenario(
    'who-selected-exhausted',
    'keeps the node when a driver without topology is full (E-05)',
    {
      class: LATE,
      claim: { annotations: SELECTED },
      answer: fails('ResourceExhausted', 'full'),
      ends: all(refused, calls('CreateVolume', 2)),
    },
  ),
  scenario('who-selected-immediate', 'ignores the selected node of a class that binds at once', {
    claim: { annotations: SELECTED },
  }),
  scenario('who-terminating', 'provisions a claim that is being deleted', {
    class: LATE,
    claim: { finalizers: ['example.com/other'] },
    ends: async (scene) => {
      await ignored(scene);
      await scene.remove(`${scene.claims}/data`);
      await scene.patch(`${scene.claims}/data`, { metadata: { annotations: SELECTED } });
      await bound(scene);
    },
    afterwards: stays,
  }),
  scenario('who-terminating-tried', 'continues if the claim is being deleted during CreateVolume', {
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
  }),
  scenario('who-gone-running', 'deletes the volume of a claim that vanished meanwhile (R-38)', {
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
  }),
  scenario('who-gone-refused', 'stops retrying for a claim that was deleted after a refusal', {
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
  }),
  scenario('who-class-gone', 'stops retrying for a class that was deleted after a refusal', {
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
  }),
  scenario('who-populator', 'leaves other kinds of sources to a populator, with an event (B-27)', {
    claim: {
      spec: { dataSourceRef: { apiGroup: 'my.example.io', kind: 'MyPopulator', name: 'x' } },
    },
    ends: event('Provisioning', 'Assuming an external populator'),
  }),
  scenario('who-volume-there', 'requests no volume if a PV of that name exists (P-02, R-01)', {
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
  }),
];
