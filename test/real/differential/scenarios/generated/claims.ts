import type { Fields } from '../../../../conformance/connection.ts';
import { makeAttributesClass } from '../attributes-classes.ts';
import type { Dice } from './dice.ts';
import type { Part, Texts } from './part.ts';
import { secretPart, soundSecret } from './secrets.ts';

const P = 'csi.storage.k8s.io/';

const parameters = (given: Texts): Part => ({
  label: `parameters ${JSON.stringify(given)}`,
  parameters: given,
});
const PARAMETERS: readonly Part[] = [
  parameters({ own: 'x', Own: 'y', 'a/b': ' ', 'é"': 'ü\n' }),
  parameters({ own: 'x'.repeat(5000) }),
  parameters({ [P]: 'x' }),
  parameters({ [`${P}pv/name`]: 'x' }),
  parameters({ [`${P}Provisioner-secret-name`]: 'x' }),
  parameters({ [`${P}fsType`]: 'x' }),
  parameters({ [`${P}"q"\t`]: '' }),
  parameters({ [`${P}é\u00a0`]: '' }),
  parameters({ 'csi.storage.k8s.io': 'x' }),
  parameters({ 'xcsi.storage.k8s.io/y': 'x' }),
  parameters({ [` ${P}y`]: 'x' }),
  parameters({ csiParameter: 'x', csiProvisionerSecretNam: 'y', csiprovisionersecretname: 'z' }),
  parameters({ csiNodeExpandSecretName: 'x', csiControllerExpandSecretNamespace: 'y' }),
];
const FS_TYPES: readonly Part[] = [
  parameters({ fstype: 'ext4' }),
  parameters({ FsType: 'XFS' }),
  parameters({ fstype: ' ext4 ' }),
  parameters({ fsType: '' }),
  parameters({ [`${P}fstype`]: ' ' }),
  parameters({ [`${P}fstype`]: 'BTRFS' }),
  parameters({ fstype: '\t' }),
  parameters({ fstype: '', [`${P}fstype`]: '' }),
  parameters({ fstype: '', FSTYPE: '' }),
  parameters({ fstype: 'x'.repeat(300) }),
  parameters({ fstype: 'é"' }),
  parameters({ fſtype: 'long s' }),
  parameters({ ' fstype': 'ext4' }),
  parameters({ 'CSI.storage.k8s.io/fstype': 'ext4' }),
];
const cls = (label: string, given: Fields): Part => ({ label, cls: given });
const CLASSES: readonly Part[] = [
  cls('Retain', { reclaimPolicy: 'Retain' }),
  cls('Delete said', { reclaimPolicy: 'Delete' }),
  cls('expansion', { allowVolumeExpansion: true }),
  cls('no expansion', { allowVolumeExpansion: false }),
  cls('Immediate said', { volumeBindingMode: 'Immediate' }),
  cls('mountOptions [empty]', { mountOptions: [''] }),
  cls('mountOptions twice', { mountOptions: ['ro', 'ro', 'a=b,c'] }),
  cls('mountOptions odd', { mountOptions: [' é"', 'x'.repeat(300)] }),
  cls('allowedTopologies', {
    allowedTopologies: [
      {
        matchLabelExpressions: [
          { key: 'a/b', values: ['x'] },
          { key: 'c', values: ['y', 'z'] },
        ],
      },
    ],
  }),
  cls('no parameters', { parameters: null }),
];
const LATE = { volumeBindingMode: 'WaitForFirstConsumer' };
const SELECTED = 'volume.kubernetes.io/selected-node';
const BINDING: readonly Part[] = [
  { label: 'late without node', cls: LATE },
  { label: 'late with node', cls: LATE, annotations: { [SELECTED]: 'unknown-node' } },
  {
    label: 'late with alpha node',
    cls: LATE,
    annotations: { 'volume.alpha.kubernetes.io/selected-node': 'unknown-node' },
  },
  {
    label: 'late with empty node and alpha',
    cls: LATE,
    annotations: { [SELECTED]: '', 'volume.alpha.kubernetes.io/selected-node': 'x' },
  },
  { label: 'late with odd node', cls: LATE, annotations: { [SELECTED]: ' é ' } },
  {
    label: 'late, node chosen later',
    cls: LATE,
    edit: (scene) =>
      scene.patch(`${scene.claims}/data`, { metadata: { annotations: { [SELECTED]: 'n' } } }),
  },
  {
    label: 'late with topologies',
    cls: {
      ...LATE,
      allowedTopologies: [{ matchLabelExpressions: [{ key: 'zone', values: ['x'] }] }],
    },
    annotations: { [SELECTED]: 'n' },
  },
];
const claimed = (given: Fields): Part => ({ label: JSON.stringify(given), spec: given });
const MODES = ['ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany'] as const;
const SIZES = [
  '1',
  '0.5',
  '100m',
  '1n',
  '1.5Gi',
  '1e3',
  '1E3',
  '1e-3',
  '12e1',
  '+1Gi',
  '1.Gi',
  '.5Gi',
  '1Ki',
  '0.1Ki',
  '1024',
  '1000',
  '2000Ki',
  '1000Mi',
  '1e9',
  '1e18',
  '8Ei',
  '7Ei',
  '9223372036854775807',
  '1T',
  '1.123456789123G',
  '4000u',
  '1k',
  '10k',
  '0.001Ti',
  '3.3Gi',
  '1e+3',
  '00012Gi',
  '1.0',
  '1.000000001',
  '1E',
  '1.1E',
] as const;
const SIZED: readonly Part[] = SIZES.map((storage) =>
  claimed({ resources: { requests: { storage } } }),
);
const ODD_CLAIMS: readonly Part[] = [
  {
    label: 'labels and annotations',
    metadata: { labels: { app: 'x', 'a.b/c': '' } },
    annotations: {
      'pv.kubernetes.io/provisioned-by': 'other',
      'volume.kubernetes.io/provisioner-deletion-secret-name': 'x',
    },
  },
  {
    label: 'finalizer',
    metadata: { finalizers: ['example.com/other'] },
    edit: (scene) => scene.patch(`${scene.claims}/data`, { metadata: { finalizers: [] } }),
  },
  {
    label: 'migrated-to other',
    annotations: { 'pv.kubernetes.io/migrated-to': 'kubernetes.io/gce-pd' },
  },
  {
    label: 'limits',
    spec: { resources: { requests: { storage: '1Gi' }, limits: { storage: '5Gi' } } },
  },
  { label: 'empty VAC', spec: { volumeAttributesClassName: '' } },
  {
    label: 'beta class annotation too',
    annotations: { 'volume.beta.kubernetes.io/storage-class': 'nowhere' },
  },
  {
    label: 'empty beta class annotation',
    annotations: { 'volume.beta.kubernetes.io/storage-class': '' },
  },
  {
    label: 'storage-provisioner empty',
    annotations: { 'volume.kubernetes.io/storage-provisioner': '' },
  },
  {
    label: 'resizer annotations',
    annotations: {
      'volume.kubernetes.io/storage-resizer': 'x',
      'pv.kubernetes.io/bind-completed': 'yes',
    },
  },
  {
    label: 'selector',
    spec: { selector: { matchExpressions: [{ key: 'a', operator: 'Exists' }] } },
  },
  {
    label: 'VAC',
    spec: (scene) => ({ volumeAttributesClassName: scene.className }),
    prepare: (scene) => makeAttributesClass(scene),
  },
  {
    label: 'VAC odd parameters',
    spec: (scene) => ({ volumeAttributesClassName: scene.className }),
    prepare: (scene) =>
      makeAttributesClass(scene, {
        parameters: { 'csi.storage.k8s.io/fstype': 'x', é: '\n', a: '' },
      }),
  },
  {
    label: 'VAC foreign',
    spec: (scene) => ({ volumeAttributesClassName: scene.className }),
    prepare: (scene) => makeAttributesClass(scene, { driverName: 'kubernetes.io/other' }),
  },
  { label: 'VAC missing', spec: { volumeAttributesClassName: 'a-missing-one' } },
];

/** Random classes and claims; every second scenario has none that is refused. */
export function claimParts(dice: Dice): readonly Part[] {
  const accessModes = dice.hits(0.1)
    ? ['ReadWriteOncePod']
    : [dice.one(MODES), ...dice.maybe(0.4, MODES), ...dice.maybe(0.2, MODES)];
  const wrong = [
    ...(dice.hits(0.6) ? [secretPart(dice)] : []),
    ...(dice.hits(0.2) ? [secretPart(dice)] : []),
    ...dice.maybe(0.3, PARAMETERS),
    ...dice.maybe(0.3, FS_TYPES),
    ...dice.maybe(0.4, ODD_CLAIMS),
  ];
  return [
    ...(dice.hits(0.5) ? wrong : dice.maybe(0.4, [soundSecret])),
    ...dice.maybe(0.3, CLASSES),
    ...dice.maybe(0.15, BINDING),
    ...(dice.hits(0.4) ? [claimed({ accessModes })] : []),
    ...dice.maybe(0.2, [claimed({ volumeMode: 'Block' }), claimed({ volumeMode: 'Filesystem' })]),
    ...dice.maybe(0.5, SIZED),
  ];
}
