import { setTimeout as delay } from 'node:timers/promises';
import type { Scene } from '../../../harness/differential/scene.ts';
import type { Fields } from '../../../conformance/connection.ts';
import { makeAttributesClass, named } from './attributes-classes.ts';
import { makeSnapshot } from '../../../harness/differential/snapshot-objects.ts';
import {
  bound,
  ignored,
  refused,
  scenario,
  type Scenario,
} from '../../../harness/differential/scenario.ts';
import { fails } from '../../../harness/differential/scripted-driver.ts';

/** All flags at once: none affects what another one does. */
export const FLAGS = [
  '--extra-create-metadata',
  '--default-fstype=xfs',
  '--controller-publish-readonly',
  '--volume-name-prefix=vol',
  '--volume-name-uuid-length=12',
  '--prevent-volume-mode-conversion=false',
  '--snapshot-orphan-sweep-interval=3s',
  '--feature-gates=CrossNamespaceVolumeDataSource=true,VolumeAttributesClass=false',
];

const P = 'csi.storage.k8s.io/';
const FROM_SNAP = { apiGroup: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot', name: 'snap' };
const PROTECTION = 'provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection';

/** What FLAGS change, with a driver that reports SINGLE_NODE_MULTI_WRITER. */
export const flags: readonly Scenario[] = [
  made(
    'flag-plain',
    'names volumes by prefix and digits, with metadata and default fstype (B-02, B-42)',
  ),
  made(
    'flag-fstype',
    'prefers the fstype of the class (B-43)',
    {},
    { parameters: { [`${P}fstype`]: 'ext4', own: 'x' } },
  ),
  made('flag-block', 'has no fstype for Block', { volumeMode: 'Block' }),
  made('flag-rox', 'creates a readOnly volume for ReadOnlyMany (B-07)', {
    accessModes: ['ReadOnlyMany'],
  }),
  made('flag-rox-block', 'creates a readOnly Block volume (R-16)', {
    accessModes: ['ReadOnlyMany'],
    volumeMode: 'Block',
  }),
  made('flag-rox-rwo', 'creates no readOnly volume for two modes (R-17)', {
    accessModes: ['ReadOnlyMany', 'ReadWriteOnce'],
  }),
  made('flag-rwo', 'asks for SINGLE_NODE_MULTI_WRITER (B-09)', { accessModes: ['ReadWriteOnce'] }),
  made('flag-rwop', 'asks for SINGLE_NODE_SINGLE_WRITER (B-10)', {
    accessModes: ['ReadWriteOncePod'],
  }),
  made('flag-rwx', 'asks for MULTI_NODE_MULTI_WRITER (Q-08)', { accessModes: ['ReadWriteMany'] }),
  scenario('flag-secret-template', 'expands the name of the volume in templates', {
    class: {
      parameters: {
        [`${P}node-publish-secret-name`]: 'for-${pv.name}',
        [`${P}node-publish-secret-namespace`]: 'n-${pv.name}',
      },
    },
  }),
  scenario('flag-metadata-given', 'refuses metadata keys of a user with --extra-create-metadata', {
    class: { parameters: { [`${P}pvc/name`]: 'x' } },
    ends: refused,
  }),
  scenario('flag-mode-conversion', 'changes the mode of a snapshot without an annotation', {
    prepare: (scene) =>
      makeSnapshot(scene, 'snap', { content: { sourceVolumeMode: 'Filesystem' } }),
    claim: { spec: { volumeMode: 'Block', dataSource: FROM_SNAP } },
  }),
  scenario('flag-vac-off', 'refuses a VolumeAttributesClass without its feature gate', {
    prepare: (scene) => makeAttributesClass(scene),
    claim: named,
    ends: (scene) =>
      scene.until('it is decided', () =>
        scene.events().some(({ reason }) => reason !== 'Provisioning'),
      ),
    afterwards: () => Promise.resolve(),
  }),
  scenario('flag-sweep', 'removes the finalizer of a snapshot once its claim is gone', {
    prepare: (scene) =>
      makeSnapshot(scene, 'snap', { metadata: { finalizers: ['example.com/other'] } }),
    claim: { spec: { dataSource: FROM_SNAP } },
    answer: fails('Internal', 'not now'),
    ends: async (scene) => {
      await refused(scene);
      await scene.until('the snapshot is protected', () => isProtected(scene));
      await ignored(scene);
    },
    afterwards: async (scene) => {
      scene.notes['protected while the claim is Pending'] = isProtected(scene);
      await scene.remove(`${scene.claims}/data`);
      await scene.until('the snapshot is free', () => !isProtected(scene));
    },
  }),
  scenario('flag-sweep-unused', 'removes the finalizer of a snapshot that no claim uses', {
    prepare: (scene) => makeSnapshot(scene, 'snap', { metadata: { finalizers: [PROTECTION] } }),
    claim: null,
    ends: (scene) =>
      scene.until(
        'the snapshot is free',
        () => scene.snapshots().length > 0 && !isProtected(scene),
      ),
  }),
];

/** Other flags, and the same flags in other notations. */
export const MORE_FLAGS = [
  '--volume-name-prefix=some-volume',
  '--controller-publish-readonly=true',
  '--extra-create-metadata=false',
  '--feature-gates=AllAlpha=true',
  '--timeout',
  '2s',
  '--worker-threads=3',
  '--leader-election=false',
];

/** What MORE_FLAGS change. */
export const moreFlags: readonly Scenario[] = [
  made('more-plain', 'names volumes by another prefix (R-02)'),
  scenario('more-timeout', 'ends a call after --timeout, and repeats the same request', {
    answer: async (call) => {
      if (call.method === 'CreateVolume' && call.count === 1) await delay(4_000);
    },
  }),
  scenario('more-many', 'creates more volumes than there are workers', {
    ends: async (scene) => {
      const names = Array.from({ length: 10 }, (_, index) => `more-${index}`);
      for (const name of names) await scene.makeClaim(name);
      await scene.until('all are Bound', () =>
        names.every((name) => scene.claim(name)?.status?.phase === 'Bound'),
      );
      await bound(scene);
    },
  }),
];

function isProtected(scene: Scene): boolean {
  return scene.snapshots().some(({ metadata }) => (metadata.finalizers ?? []).includes(PROTECTION));
}

function made(name: string, title: string, spec: Fields = {}, cls: Fields = {}): Scenario {
  return scenario(name, title, { class: cls, claim: { spec } });
}
