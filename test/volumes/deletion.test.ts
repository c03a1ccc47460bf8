import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  chooseSecret,
  deletionSecret,
  shouldDelete,
  volumeFailedDelete,
} from '#src/volumes/deletion.ts';
import type { Class, Volume } from '#src/kube/objects.ts';
import type { DriverFacts } from '#src/volumes/driver-facts.ts';
import { aClass, aVolume, driver, DRIVER } from './builders.ts';

const PROVISIONED_BY = 'pv.kubernetes.io/provisioned-by';
const MIGRATED_TO = 'pv.kubernetes.io/migrated-to';
const kind = (volume: Volume, by = driver) => shouldDelete(volume, by).kind;
type Verdict = ReturnType<typeof kind>;

describe('shouldDelete', () => {
  const deleted = { deletionTimestamp: 'now' };
  const bare = { finalizers: [] };
  const cases: readonly (readonly [Verdict, title: string, Parameters<typeof aVolume>[0]])[] = [
    ['delete', 'Released (P-77)', {}],
    ['delete', 'Released and being deleted (P-78)', { metadata: deleted }],
    ['delete', 'Released and never had our finalizer (P-59) (P-64)', { metadata: bare }],
    ['ignore', 'being deleted without our finalizer (P-63)', { metadata: { ...bare, ...deleted } }],
    ['ignore', 'Pending', { phase: 'Pending' }],
    ['ignore', 'Available', { phase: 'Available' }],
    ['ignore', 'Bound (P-32) (P-61) (P-79)', { phase: 'Bound' }],
    ['ignore', 'Failed (P-60)', { phase: 'Failed' }],
    ['ignore', 'Failed and lacks our finalizer (R-25)', { phase: 'Failed', metadata: bare }],
    ['add-finalizer', 'Bound and lacks our finalizer', { phase: 'Bound', metadata: bare }],
    [
      'ignore',
      'Bound, being deleted, and lacks our finalizer',
      { phase: 'Bound', metadata: { ...bare, ...deleted } },
    ],
    ['ignore', 'not Bound yet and lacks our finalizer', { phase: 'Available', metadata: bare }],
    ...(['Retain', 'Recycle'] as const).flatMap((persistentVolumeReclaimPolicy) => {
      const spec = { persistentVolumeReclaimPolicy };
      const remove = 'remove-finalizer' as const;
      return [
        ...['Available', 'Bound', 'Released', 'Failed'].map(
          (phase) =>
            [remove, `${phase}: ${spec.persistentVolumeReclaimPolicy}`, { spec, phase }] as const,
        ),
        [
          remove,
          `being deleted: ${spec.persistentVolumeReclaimPolicy}`,
          { spec, metadata: deleted },
        ] as const,
      ];
    }),
    [
      'ignore',
      'Released with policy Retain (P-62) (P-80)',
      { metadata: bare, spec: { persistentVolumeReclaimPolicy: 'Retain' } },
    ],
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
  const inTree = (annotations: Record<string, string>): Volume => {
    const { csi: _, ...spec } = aVolume().spec;
    return {
      ...aVolume({ metadata: { annotations } }),
      spec: { ...spec, gcePersistentDisk: { pdName: 'disk' } },
    };
  };
  const csi = (annotations: Record<string, string>, maker = DRIVER): Volume =>
    aVolume({ metadata: { annotations }, spec: { csi: { driver: maker, volumeHandle: 'h' } } });
  const other = 'other.example.com';

  const cases: readonly (readonly [string, Volume, 'delete' | 'ignore'])[] = [
    [
      'an in-tree volume that we provisioned (P-66)',
      inTree({ [PROVISIONED_BY]: DRIVER }),
      'delete',
    ],
    [
      'the same, migrated to us (P-67)',
      inTree({ [PROVISIONED_BY]: DRIVER, [MIGRATED_TO]: DRIVER }),
      'delete',
    ],
    [
      'an in-tree volume that another provisioned (P-68)',
      inTree({ [PROVISIONED_BY]: other }),
      'ignore',
    ],
    [
      'the same, migrated to that one (P-69)',
      inTree({ [PROVISIONED_BY]: other, [MIGRATED_TO]: other }),
      'ignore',
    ],
    [
      'a volume of another provisioner that was migrated to us (P-65)',
      inTree({ [PROVISIONED_BY]: other, [MIGRATED_TO]: DRIVER }),
      'delete',
    ],
    ['a CSI volume that we provisioned (P-70)', csi({ [PROVISIONED_BY]: DRIVER }), 'delete'],
    ['a CSI volume that another provisioned (P-71)', csi({ [PROVISIONED_BY]: other }), 'ignore'],
    ['a static CSI volume of our driver (P-72)', csi({}), 'delete'],
    ['a static CSI volume of another driver (P-73)', csi({}, other), 'ignore'],
    [
      'a static CSI volume of another driver that names us as its successor',
      csi({ [MIGRATED_TO]: DRIVER }, other),
      'ignore',
    ],
    ['a static in-tree volume (P-74)', inTree({}), 'ignore'],
    [
      'a static in-tree volume that was migrated to us (P-75)',
      inTree({ [MIGRATED_TO]: DRIVER }),
      'delete',
    ],
    [
      'a static in-tree volume that was migrated to another (P-76)',
      inTree({ [MIGRATED_TO]: other }),
      'ignore',
    ],
    [
      'a volume that our in-tree plug-in provisioned',
      inTree({ [PROVISIONED_BY]: inTreeName }),
      'delete',
    ],
  ];
  for (const [what, volume, expected] of cases) {
    it(`${expected}s ${what}`, () => assert.equal(kind(volume, successor), expected));
  }

  it('ignores the volume of a plug-in that another driver replaced', () => {
    assert.equal(kind(inTree({ [PROVISIONED_BY]: inTreeName }), driver), 'ignore');
  });

  it('adds our finalizer to a Bound in-tree volume migrated to us (P-39) (P-40)', () => {
    const volume = inTree({ [MIGRATED_TO]: DRIVER });
    assert.equal(
      kind({
        ...volume,
        metadata: { ...volume.metadata, finalizers: [] },
        status: { phase: 'Bound' },
      }),
      'add-finalizer',
    );
  });

  it('adds our finalizer to a Bound static CSI volume of our driver (P-41)', () => {
    assert.equal(
      kind(aVolume({ phase: 'Bound', metadata: { annotations: {}, finalizers: [] } })),
      'add-finalizer',
    );
  });
});

const NAME = 'volume.kubernetes.io/provisioner-deletion-secret-name';
const NAMESPACE = 'volume.kubernetes.io/provisioner-deletion-secret-namespace';

describe('deletionSecret', () => {
  const metadata = (name: string, namespace: string) => ({
    annotations: { [NAME]: name, [NAMESPACE]: namespace },
  });
  it('is the secret that both annotations name', () =>
    assert.deepEqual(deletionSecret(metadata('n', 's')), { name: 'n', namespace: 's' }));
  it('is undefined if either is empty or missing', () => {
    assert.equal(deletionSecret({}), undefined);
    assert.equal(deletionSecret(metadata('n', '')), undefined);
    assert.equal(deletionSecret(metadata('', 's')), undefined);
  });
});

describe('chooseSecret', () => {
  const ofClass = (name: string, namespace = 'vault') => ({
    'csi.storage.k8s.io/provisioner-secret-name': name,
    'csi.storage.k8s.io/provisioner-secret-namespace': namespace,
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
  const OF_CLASS = { ref: { name: 'of-class', namespace: 'vault' } };
  const { annotations: _none, ...unannotated } = aVolume().metadata;
  const BETA = { 'volume.beta.kubernetes.io/storage-class': 'class' };
  const choices: readonly (readonly [
    title: string,
    Volume,
    (name: string) => Class | undefined,
    ReturnType<typeof chooseSecret>,
  ])[] = [
    [
      'the annotated secret, whatever the class names now (F-12) (F-14)',
      annotated('n', 's'),
      named,
      { ref: { name: 'n', namespace: 's' } },
    ],
    [
      'the annotated secret if the class is gone (F-13)',
      annotated('n', 's'),
      gone,
      { ref: { name: 'n', namespace: 's' } },
    ],
    ['none if both annotations are empty (F-10)', annotated('', ''), named, {}],
    [
      'none if both annotations are empty and the class is gone (F-11)',
      annotated('', ''),
      gone,
      {},
    ],
    ['none without a namespace, whatever the class (R-20)', annotated('n', ''), never, {}],
    ['none without a name, whatever the class (R-20)', annotated('', 's'), never, {}],
    ['that of the class without annotations', volumeWith({}), named, OF_CLASS],
    [
      'that of the class if one annotation is missing',
      volumeWith({ [NAME]: 'n' }),
      named,
      OF_CLASS,
    ],
    [
      'that of the class if the other is missing',
      volumeWith({ [NAMESPACE]: 's' }),
      named,
      OF_CLASS,
    ],
    [
      'that of the class if the PV has no annotations at all',
      { ...volumeWith({}), metadata: unannotated },
      named,
      OF_CLASS,
    ],
    ['none for a volume without a class (F-07) (F-09)', volumeWith({}, {}), never, {}],
    ['none for one whose class is empty', volumeWith({}, { storageClassName: '' }), never, {}],
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
      classWith({
        parameters: {
          'csi.storage.k8s.io/secret-name': '${pv.name}-${pvc.name}',
          'csi.storage.k8s.io/secret-namespace': '${pvc.namespace}',
        },
      }),
      { ref: { name: 'test-testi-claim', namespace: 'space' } },
    ],
  ];
  for (const [title, volume, classOf, expected] of choices)
    it(`chooses ${title}`, () => assert.deepEqual(chooseSecret(volume, driver, classOf), expected));

  it('chooses none if the claim is unknown, with a note', () => {
    const { claimRef: _, ...spec } = volumeWith({}).spec;
    const choice = chooseSecret(
      { ...volumeWith({}), spec },
      driver,
      classWith({ parameters: ofClass('n') }),
    );
    assert.deepEqual(Object.keys(choice), ['note']);
    assert.match(choice.note ?? '', /claimRef/);
  });

  it('chooses none if the class has no parameters', () => {
    const { parameters: _, ...bare } = aClass();
    assert.deepEqual(
      chooseSecret(volumeWith({}), driver, () => bare),
      {},
    );
  });

  it('refuses a template with an annotation: the claim is gone (R-21)', () => {
    const parameters = ofClass("${pvc.annotations['key']}");
    assert.throws(() => chooseSecret(volumeWith({}), driver, classWith({ parameters })), {
      name: 'RefusedError',
      message: new RegExp(
        '^failed to get secretreference for volume test-testi: error resolving ' +
          String.raw`value .*invalid tokens: \["pvc\.annotations\['key'\]"\]$`,
      ),
    });
  });

  it('refuses a template with an empty result for a claim without a name', () => {
    const volume = aVolume({
      metadata: { annotations: {} },
      spec: { storageClassName: 'class', claimRef: { uid: 'testid' } },
    });
    assert.throws(
      () =>
        chooseSecret(
          volume,
          driver,
          classWith({ parameters: ofClass('${pvc.name}', '${pvc.namespace}') }),
        ),
      {
        name: 'RefusedError',
        message: /^failed to get secretreference for volume test-testi: .*is not a valid/,
      },
    );
  });

  it('lets the error of a defect pass', () => {
    const broken: Class = {
      ...aClass(),
      get parameters(): never {
        throw new Error('a defect');
      },
    };
    assert.throws(() => chooseSecret(volumeWith({}), driver, () => broken), {
      name: 'Error',
      message: 'a defect',
    });
  });

  it('refuses half a reference (F-03)', () => {
    const parameters = {
      'csi.storage.k8s.io/provisioner-secret-name': "${pvc.annotations['key']}",
    };
    assert.throws(() => chooseSecret(volumeWith({}), driver, classWith({ parameters })), {
      name: 'RefusedError',
      message: new RegExp(
        '^failed to get secretreference for volume test-testi: .*either name and ' +
          'namespace for Provisioner secrets specified',
      ),
    });
  });

  describe('for a migrated volume', () => {
    const portworx: DriverFacts = {
      ...driver,
      name: 'pxd.portworx.com',
      inTreeName: 'kubernetes.io/portworx-volume',
    };
    const parameters = {
      'openstorage.io/auth-secret-name': 'px',
      'openstorage.io/auth-secret-namespace': 'vault',
    };
    const cls = (provisioner = 'kubernetes.io/portworx-volume') =>
      classWith({ provisioner, parameters });
    const { csi: _, ...spec } = volumeWith({}).spec;
    const migrated: Volume = {
      ...volumeWith({}),
      spec: { ...spec, portworxVolume: { volumeID: 'v' } },
    };

    it('translates the class first', () => {
      assert.deepEqual(chooseSecret(migrated, portworx, cls()), {
        ref: { name: 'px', namespace: 'vault' },
      });
    });

    it('does not translate a class of another plug-in', () =>
      assert.deepEqual(chooseSecret(migrated, portworx, cls('other')), {}));

    it('does not translate the class of a volume stored as CSI', () =>
      assert.deepEqual(chooseSecret(volumeWith({}), portworx, cls()), {}));

    it('refuses a class that can’t be translated, and says why', () => {
      const gce: DriverFacts = { ...driver, inTreeName: 'kubernetes.io/gce-pd' };
      const twice = classWith({
        provisioner: 'kubernetes.io/gce-pd',
        parameters: { zone: 'a' },
        allowedTopologies: [
          { matchLabelExpressions: [{ key: 'topology.kubernetes.io/zone', values: ['b'] }] },
        ],
      });
      const volume: Volume = { ...migrated, spec: { ...spec, gcePersistentDisk: { pdName: 'd' } } };
      assert.throws(() => chooseSecret(volume, gce, twice), {
        name: 'RefusedError',
        message: 'cannot simultaneously set allowed topologies and zone/zones parameters',
      });
    });
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
