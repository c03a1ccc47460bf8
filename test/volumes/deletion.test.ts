import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { chooseSecret, shouldDelete, volumeFailedDelete } from '#src/volumes/deletion.ts';
import type { Class, Volume } from '#src/kube/objects.ts';
import type { DriverFacts } from '#src/volumes/driver-facts.ts';
import { aClass, aVolume, driver, DRIVER } from './builders.ts';

const N = 'csi.storage.k8s.io/';
const PROVISIONED_BY = 'pv.kubernetes.io/provisioned-by';
const MIGRATED_TO = 'pv.kubernetes.io/migrated-to';
const kind = (volume: Volume, by = driver) => shouldDelete(volume, by).kind;
type Verdict = ReturnType<typeof kind>;

describe('shouldDelete', () => {
  const gone = { deletionTimestamp: 'now' };
  const bare = { finalizers: [] };
  const retain = { persistentVolumeReclaimPolicy: 'Retain' } as const;
  const recycle = { persistentVolumeReclaimPolicy: 'Recycle' } as const;
  const cases: readonly (readonly [Verdict, title: string, Parameters<typeof aVolume>[0]])[] = [
    ['delete', 'Released (P-77)', {}],
    ['delete', 'Released and being deleted (P-78)', { metadata: gone }],
    ['delete', 'Released and never had our finalizer (P-59) (P-64)', { metadata: bare }],
    ['ignore', 'being deleted without our finalizer (P-63)', { metadata: { ...bare, ...gone } }],
    ['ignore', 'Available', { phase: 'Available' }],
    ['ignore', 'Bound (P-32) (P-61) (P-79)', { phase: 'Bound' }],
    ['ignore', 'Failed (P-60)', { phase: 'Failed' }],
    ['ignore', 'Failed and lacks our finalizer (R-25)', { phase: 'Failed', metadata: bare }],
    ['add-finalizer', 'Bound and lacks our finalizer', { phase: 'Bound', metadata: bare }],
    [
      'ignore',
      'Bound, being deleted, and lacks our finalizer',
      { phase: 'Bound', metadata: { ...bare, ...gone } },
    ],
    ['ignore', 'Available and lacks our finalizer', { phase: 'Available', metadata: bare }],
    ['remove-finalizer', 'Bound with policy Retain', { phase: 'Bound', spec: retain }],
    ['remove-finalizer', 'Released with policy Recycle', { spec: recycle }],
    ['ignore', 'Released with policy Retain (P-62) (P-80)', { metadata: bare, spec: retain }],
  ];
  for (const [verdict, title, change] of cases)
    it(`says ${verdict} for a volume that is ${title}`, () =>
      assert.equal(kind(aVolume(change)), verdict));

  it('ignores a volume without a phase, and a Released one without a policy', () => {
    const { status: _, ...phaseless } = aVolume();
    assert.equal(kind(phaseless), 'ignore');
    const { persistentVolumeReclaimPolicy: _policy, ...spec } = aVolume().spec;
    assert.equal(kind({ ...aVolume(), spec }), 'ignore');
  });
});

describe('shouldDelete, by whose volume it is,', () => {
  const inTreeName = 'kubernetes.io/gce-pd';
  const successor: DriverFacts = { ...driver, inTreeName };
  const other = 'other.example.com';
  /** Annotations that say who provisioned a volume, and to whom it was migrated. */
  const by = (provisioner?: string, migratedTo?: string): Record<string, string> => ({
    ...(provisioner === undefined ? {} : { [PROVISIONED_BY]: provisioner }),
    ...(migratedTo === undefined ? {} : { [MIGRATED_TO]: migratedTo }),
  });
  const inTree = (provisioner?: string, migratedTo?: string): Volume => {
    const { csi: _, ...spec } = aVolume().spec;
    return {
      ...aVolume({ metadata: { annotations: by(provisioner, migratedTo) } }),
      spec: { ...spec, gcePersistentDisk: { pdName: 'disk' } },
    };
  };
  const csi = (annotations: Record<string, string>, maker = DRIVER): Volume =>
    aVolume({ metadata: { annotations }, spec: { csi: { driver: maker, volumeHandle: 'h' } } });

  const cases: readonly (readonly [string, Volume, 'delete' | 'ignore'])[] = [
    ['an in-tree volume that we provisioned (P-66)', inTree(DRIVER), 'delete'],
    ['the same, migrated to us (P-67)', inTree(DRIVER, DRIVER), 'delete'],
    ['an in-tree volume that another provisioned (P-68)', inTree(other), 'ignore'],
    ['the same, migrated to that one (P-69)', inTree(other, other), 'ignore'],
    ['a volume of another that was migrated to us (P-65)', inTree(other, DRIVER), 'delete'],
    ['a CSI volume that we provisioned (P-70)', csi(by(DRIVER)), 'delete'],
    ['a CSI volume that another provisioned (P-71)', csi(by(other)), 'ignore'],
    ['a static CSI volume of our driver (P-72)', csi({}), 'delete'],
    ['a static CSI volume of another driver (P-73)', csi({}, other), 'ignore'],
    ['the same that names us as successor', csi(by(undefined, DRIVER), other), 'ignore'],
    ['a static in-tree volume (P-74)', inTree(), 'ignore'],
    ['the same, migrated to us (P-75)', inTree(undefined, DRIVER), 'delete'],
    ['the same, migrated to another (P-76)', inTree(undefined, other), 'ignore'],
    ['a volume that our in-tree plug-in provisioned', inTree(inTreeName), 'delete'],
  ];
  for (const [what, volume, expected] of cases)
    it(`${expected}s ${what}`, () => assert.equal(kind(volume, successor), expected));

  it('ignores the volume of a plug-in that another driver replaced', () => {
    assert.equal(kind(inTree(inTreeName), driver), 'ignore');
    assert.equal(kind(inTree(), driver), 'ignore', 'nor does it replace what has no name');
  });

  const bound = (volume: Volume): Volume => ({
    ...volume,
    metadata: { ...volume.metadata, finalizers: [] },
    status: { phase: 'Bound' },
  });
  it('adds our finalizer to a Bound in-tree volume migrated to us (P-39) (P-40)', () =>
    assert.equal(kind(bound(inTree(undefined, DRIVER))), 'add-finalizer'));
  it('adds our finalizer to a Bound static CSI volume of our driver (P-41)', () =>
    assert.equal(kind(bound(csi({}))), 'add-finalizer'));
});

const NAME = 'volume.kubernetes.io/provisioner-deletion-secret-name';
const NAMESPACE = 'volume.kubernetes.io/provisioner-deletion-secret-namespace';

describe('chooseSecret', () => {
  const ofClass = (name: string, namespace = 'vault') => ({
    [`${N}provisioner-secret-name`]: name,
    [`${N}provisioner-secret-namespace`]: namespace,
  });
  const volumeWith = (
    annotations: Record<string, string>,
    spec: Partial<Volume['spec']> = { storageClassName: 'class' },
  ): Volume => aVolume({ metadata: { annotations }, spec });
  const gone = (): undefined => undefined;
  const classWith =
    (change: Partial<Class>) =>
    (name: string): Class | undefined =>
      name === 'class' ? aClass(change) : undefined;
  const never = (): never => assert.fail('the class was looked at');

  const annotated = (name: string, namespace: string) =>
    volumeWith({ [NAME]: name, [NAMESPACE]: namespace });
  const named = classWith({ parameters: ofClass('of-class') });
  const common = classWith({
    parameters: {
      [`${N}secret-name`]: '${pv.name}-${pvc.name}',
      [`${N}secret-namespace`]: '${pvc.namespace}',
    },
  });
  const MINE = { ref: { name: 'n', namespace: 's' } };
  const OF_CLASS = { ref: { name: 'of-class', namespace: 'vault' } };
  const BETA = { 'volume.beta.kubernetes.io/storage-class': 'class' };
  const choices: readonly (readonly [
    title: string,
    Volume,
    (name: string) => Class | undefined,
    ReturnType<typeof chooseSecret>,
  ])[] = [
    ['the annotated one, whatever the class names (F-12) (F-14)', annotated('n', 's'), named, MINE],
    ['the annotated one if the class is gone (F-13)', annotated('n', 's'), gone, MINE],
    ['none if both annotations are empty (F-10)', annotated('', ''), named, {}],
    ['none for empty annotations without a class (F-11)', annotated('', ''), gone, {}],
    ['none without a namespace, whatever the class (R-20)', annotated('n', ''), never, {}],
    ['none without a name, whatever the class (R-20)', annotated('', 's'), never, {}],
    ['that of the class without annotations', volumeWith({}), named, OF_CLASS],
    ['that of the class if one is missing', volumeWith({ [NAME]: 'n' }), named, OF_CLASS],
    ['that of the class if the other is', volumeWith({ [NAMESPACE]: 's' }), named, OF_CLASS],
    ['none for a volume without a class (F-07) (F-09)', volumeWith({}, {}), never, {}],
    [
      'that of the class in the beta annotation before that of the field (F-16)',
      volumeWith(BETA, { storageClassName: 'another' }),
      named,
      OF_CLASS,
    ],
    [
      'none if the class is gone, with a note',
      volumeWith({}),
      gone,
      { note: 'storageClass "class" not found' },
    ],
    ['none if the class names none', volumeWith({}), classWith({}), {}],
    [
      'the default secret of the class, with volume and claim filled in',
      volumeWith({}),
      common,
      { ref: { name: 'test-testi-claim', namespace: 'space' } },
    ],
  ];
  for (const [title, volume, classOf, expected] of choices)
    it(`chooses ${title}`, () => assert.deepEqual(chooseSecret(volume, driver, classOf), expected));

  it('chooses none if the claim is unknown, with a note', () => {
    const { claimRef: _, ...spec } = volumeWith({}).spec;
    const volume = { ...volumeWith({}), spec };
    assert.match(chooseSecret(volume, driver, named).note ?? '', /claimRef/);
  });

  const BEGIN = '^failed to get secretreference for volume test-testi: ';
  const half = { [`${N}provisioner-secret-name`]: "${pvc.annotations['key']}" };
  const refusals: Readonly<Record<string, readonly [Record<string, string>, string]>> = {
    'a template with an annotation: the claim is gone (R-21)': [
      ofClass("${pvc.annotations['key']}"),
      String.raw`error resolving value .*invalid tokens: \["pvc\.annotations\['key'\]"\]$`,
    ],
    'half a reference (F-03)': [half, '.*either name and namespace for Provisioner secrets'],
  };
  for (const [title, [parameters, text]] of Object.entries(refusals))
    it(`refuses ${title}`, () =>
      assert.throws(() => chooseSecret(volumeWith({}), driver, classWith({ parameters })), {
        name: 'RefusedError',
        message: new RegExp(BEGIN + text),
      }));

  describe('for a migrated volume', () => {
    const inTreeName = 'kubernetes.io/portworx-volume';
    const portworx: DriverFacts = { ...driver, name: 'pxd.portworx.com', inTreeName };
    const parameters = {
      'openstorage.io/auth-secret-name': 'px',
      'openstorage.io/auth-secret-namespace': 'vault',
    };
    const cls = (provisioner = inTreeName) => classWith({ provisioner, parameters });
    const { csi: _, ...spec } = volumeWith({}).spec;
    const migrated = { ...volumeWith({}), spec: { ...spec, portworxVolume: { volumeID: 'v' } } };
    const translated = { ref: { name: 'px', namespace: 'vault' } };

    it('translates the class first', () =>
      assert.deepEqual(chooseSecret(migrated, portworx, cls()), translated));
    it('does not translate a class of another plug-in', () =>
      assert.deepEqual(chooseSecret(migrated, portworx, cls('other')), {}));
    it('does not translate the class of a volume stored as CSI', () =>
      assert.deepEqual(chooseSecret(volumeWith({}), portworx, cls()), {}));
  });
});

it('the event of a failed deletion is a warning on the volume as it was read (P-11)', () => {
  const volume = aVolume();
  const { name, uid, resourceVersion } = volume.metadata;
  assert.deepEqual(volumeFailedDelete(volume, 'busy'), {
    type: 'Warning',
    reason: 'VolumeFailedDelete',
    message: 'busy',
    regarding: { kind: 'PersistentVolume', apiVersion: 'v1', name, uid, resourceVersion },
  });
});
