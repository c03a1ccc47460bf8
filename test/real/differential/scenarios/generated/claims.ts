import type { Fields } from '../../../../conformance/connection.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import { makeAttributesClass } from '../attributes-classes.ts';
import { PURPOSES } from '../secrets.ts';
import type { Dice, Part, Texts } from './part.ts';

const P = 'csi.storage.k8s.io/';
const SELECTED = 'volume.kubernetes.io/selected-node';

const withParameters = (...each: readonly Texts[]): readonly Part[] =>
  each.map((parameters) => ({ label: `parameters ${JSON.stringify(parameters)}`, parameters }));
const withSpec = (...each: readonly Fields[]): readonly Part[] =>
  each.map((spec) => ({ label: JSON.stringify(spec), spec }));
const ofClass = (...each: readonly Fields[]): readonly Part[] =>
  each.map((cls) => ({ label: `class ${JSON.stringify(cls)}`, cls }));
const annotated = (...each: readonly Texts[]): readonly Part[] =>
  each.map((annotations) => ({ label: JSON.stringify(annotations), annotations }));

const PARAMETERS = withParameters(
  { own: 'x'.repeat(5000), Own: 'y', 'a/b': ' ', 'é"': 'ü\n' },
  { [P]: 'x' },
  { [`${P}pv/name`]: 'x' },
  { [`${P}Provisioner-secret-name`]: 'x' },
  { [`${P}"q"\t`]: '' },
  { 'xcsi.storage.k8s.io/y': 'x', ' csi.storage.k8s.io/y': 'x', 'csi.storage.k8s.io': 'x' },
  { csiParameter: 'x', csiProvisionerSecretNam: 'y', csiNodeExpandSecretName: 'x' },
);
const FS_TYPES = withParameters(
  { FsType: 'XFS' },
  { fstype: ' ext4 ' },
  { fsType: '' },
  { [`${P}fstype`]: ' ' },
  { [`${P}fstype`]: 'BTRFS' },
  { fstype: '', [`${P}fstype`]: '' },
  { fstype: '', FSTYPE: '' },
  { fstype: 'é"'.repeat(100) },
  { fſtype: 'long s', ' fstype': 'ext4' },
  { 'CSI.storage.k8s.io/fstype': 'ext4' },
);
const TOPOLOGIES = [
  {
    matchLabelExpressions: [
      { key: 'a/b', values: ['x'] },
      { key: 'c', values: ['y', 'z'] },
    ],
  },
];
const CLASSES = ofClass(
  { reclaimPolicy: 'Retain' },
  { allowVolumeExpansion: true },
  { volumeBindingMode: 'Immediate' },
  { mountOptions: [''] },
  { mountOptions: ['ro', 'ro', ' é"', 'x'.repeat(300)] },
  { allowedTopologies: TOPOLOGIES },
  { parameters: null },
);
const LATE = { volumeBindingMode: 'WaitForFirstConsumer' };
const ALPHA = 'volume.alpha.kubernetes.io/selected-node';
const BINDING: readonly Part[] = [
  { label: 'late without node', cls: LATE },
  { label: 'late with alpha node', cls: LATE, annotations: { [SELECTED]: '', [ALPHA]: 'x' } },
  { label: 'late with odd node', cls: LATE, annotations: { [SELECTED]: ' é ' } },
  {
    label: 'late with topologies, node chosen later',
    cls: { ...LATE, allowedTopologies: TOPOLOGIES },
    edit: (scene) =>
      scene.patch(`${scene.claims}/data`, { metadata: { annotations: { [SELECTED]: 'n' } } }),
  },
];
const MODES = ['ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany'] as const;
const SIZED = withSpec(
  ...(
    '1 0.5 100m 1n 1.5Gi 1e3 1E3 1e-3 12e1 +1Gi 1.Gi .5Gi 1Ki 0.1Ki 1024 1000 2000Ki 1000Mi 1e9 ' +
    '1e18 8Ei 7Ei 9223372036854775807 1T 1.123456789123G 4000u 1k 10k 0.001Ti 3.3Gi 1e+3 00012Gi ' +
    '1.0 1.000000001 1E 1.1E'
  )
    .split(' ')
    .map((storage) => ({ resources: { requests: { storage } } })),
);

/** A claim that names a VolumeAttributesClass of these fields. */
const attributes = (label: string, fields: Fields): Part => ({
  label: `VAC ${label}`,
  spec: (scene) => ({ volumeAttributesClassName: scene.className }),
  prepare: (scene) => makeAttributesClass(scene, fields),
});
const ODD_CLAIMS: readonly Part[] = [
  { label: 'labels', metadata: { labels: { app: 'x', 'a.b/c': '' } } },
  {
    label: 'finalizer',
    metadata: { finalizers: ['example.com/other'] },
    edit: (scene) => scene.patch(`${scene.claims}/data`, { metadata: { finalizers: [] } }),
  },
  ...annotated(
    { 'pv.kubernetes.io/provisioned-by': 'other' },
    { 'pv.kubernetes.io/migrated-to': 'kubernetes.io/gce-pd' },
    { 'volume.beta.kubernetes.io/storage-class': 'nowhere' },
    { 'volume.beta.kubernetes.io/storage-class': '' },
    { 'volume.kubernetes.io/storage-provisioner': '' },
    { 'volume.kubernetes.io/storage-resizer': 'x', 'pv.kubernetes.io/bind-completed': 'yes' },
  ),
  ...withSpec(
    { resources: { requests: { storage: '1Gi' }, limits: { storage: '5Gi' } } },
    { selector: { matchExpressions: [{ key: 'a', operator: 'Exists' }] } },
    { volumeAttributesClassName: '' },
    { volumeAttributesClassName: 'a-missing-one' },
  ),
  attributes('plain', {}),
  attributes('odd parameters', { parameters: { [`${P}fstype`]: 'x', é: '\n', a: '' } }),
  attributes('foreign', { driverName: 'kubernetes.io/other' }),
];

const DEPRECATED: Texts = {
  'provisioner-': 'csiProvisionerSecret',
  'node-stage-': 'csiNodeStageSecret',
  'node-publish-': 'csiNodePublishSecret',
  'controller-publish-': 'csiControllerPublishSecret',
};
const NAMES = [
  ...(
    'creds creds creds ${pvc.name} ${pvc.namespace}-x ${pvc.annotations[a]} ${pvc.annotations["a"]} ' +
    '$pvc $ a$ a${}b creds${ creds${pvc.name $1 $$ ${$} ${pvc.name}} ${{pvc.name}} quo"te UPPER ' +
    'back\\slash é 😀 ${é} ${a"b} -x a..b a.b . $_x $a.b ${b}${a}${é}${Z} <&>'
  ).split(' '),
  '${pv.name}',
  "cr${pvc.annotations['a']}",
  "${pvc.annotations['missing']}",
  "x${pvc.annotations['empty']}",
  "${pvc.annotations['a']}${pvc.annotations['b']}${pvc.annotations['a']}",
  ...'${ pvc.name }|${a\tb}| creds|tab\there|line\nbreak|del\u007f|zero\u200b'.split('|'),
  ...[253, 254].map((length) => 'x'.repeat(length)),
];
const NAMESPACES = [
  ...(
    '(own) (own) (own) (own) ${pvc.namespace} ${pvc.namespace} ${pv.name} ${pvc.name} nowhere 9 Up ' +
    'a.b $pvc.namespace quo"te é <x>'
  ).split(' '),
  ..."${pvc.annotations['a']}| |${pvc.namespace}-\t".split('|'),
  ...[63, 64].map((length) => 'x'.repeat(length)),
];
/** Of secrets that can't exist or do not exist. */
const NOT_FOUND = ['${pv.name}', 'x'.repeat(63), 'nowhere', '9'];

/** A secret that the class names in a random way. */
function secretPart(dice: Dice): Part {
  const purpose = dice.one(PURPOSES);
  // A secret that is read has to exist: sutler checks that last, unlike upstream.
  const isRead = purpose === 'provisioner-' || purpose === '';
  const one = (list: readonly string[]): string =>
    dice.one(isRead ? list.filter((text) => !NOT_FOUND.includes(text)) : list);
  const [name, namespace] = [one(NAMES), one(NAMESPACES)];
  const old = dice.hits(0.3) ? DEPRECATED[purpose] : undefined;
  const form = dice.next();
  const half = form < 0.06 ? 'name' : form < 0.12 ? 'namespace' : undefined;
  const prefix = old ?? `${P}${purpose}secret`;
  return {
    label: `secret ${prefix} ${JSON.stringify([name, namespace])} ${half ?? 'both'}`,
    parameters: (scene) => ({
      ...(half === 'namespace' ? {} : { [`${prefix}${old ? 'Name' : '-name'}`]: name }),
      ...(half === 'name'
        ? {}
        : {
            [`${prefix}${old ? 'Namespace' : '-namespace'}`]:
              namespace === '(own)' ? scene.namespace : namespace,
          }),
    }),
    annotations: { a: 'eds', b: 'x.y', empty: '' },
    prepare: makeSecrets,
  };
}

const soundSecret: Part = {
  label: 'a secret',
  parameters: {
    [`${P}provisioner-secret-name`]: 'creds',
    [`${P}provisioner-secret-namespace`]: '${pvc.namespace}',
  },
  prepare: makeSecrets,
};

/** Creates every secret that a name may resolve to, once. */
export async function makeSecrets(scene: Scene): Promise<void> {
  if (scene.happened.has('secrets')) return;
  scene.happened.add('secrets');
  const names = `creds data others ${scene.namespace}-x x b ab a.b edsx.yeds credspvc.name`;
  for (const name of [...names.split(' '), 'x'.repeat(253)])
    await scene.makeSecret(name, { user: 'anna', of: name, '.hidden-_': '', label: ' é\n"😀 ' });
}

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
    ...dice.maybe(0.4, withSpec({ accessModes })),
    ...dice.maybe(0.2, withSpec({ volumeMode: 'Block' }, { volumeMode: 'Filesystem' })),
    ...dice.maybe(0.5, SIZED),
  ];
}
