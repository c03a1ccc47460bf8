import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  chooseSecret,
  deletionSecret,
  shouldDelete,
  recordId,
  vanishedRecordIds,
} from '#src/volumes/deletion.ts';
import type { Class, Volume } from '#src/kube/objects.ts';
import type { DriverFacts } from '#src/volumes/driver-facts.ts';
import { aClass, aVolume, driver, DRIVER, options } from './builders.ts';

const PROVISIONED_BY = 'pv.kubernetes.io/provisioned-by';
const MIGRATED_TO = 'pv.kubernetes.io/migrated-to';
const kind = (volume: Volume, by = driver) => shouldDelete(volume, by).kind;

describe('shouldDelete', () => {
  const terminating = { deletionTimestamp: 'now' };
  const bare = { finalizers: [] };

  it('deletes a Released volume of ours with policy Delete (P-77)', () =>
    assert.equal(kind(aVolume()), 'delete'));

  it('deletes it also if its PV is being deleted (P-78)', () =>
    assert.equal(kind(aVolume({ metadata: terminating })), 'delete'));

  it('deletes a Released volume that never had our finalizer (P-59) (P-64)', () =>
    assert.equal(kind(aVolume({ metadata: bare })), 'delete'));

  it('ignores a PV that is being deleted without our finalizer (P-63)', () => {
    assert.equal(kind(aVolume({ metadata: { ...bare, ...terminating } })), 'ignore');
  });

  for (const [phase, ids] of [
    ['Pending', ''],
    ['Available', ''],
    ['Bound', ' (P-32) (P-61) (P-79)'],
    ['Failed', ' (P-60)'],
  ] as const) {
    it(`ignores a ${phase} volume${ids}`, () => assert.equal(kind(aVolume({ phase })), 'ignore'));
  }

  it('ignores a Failed volume that lacks our finalizer (R-25)', () => {
    assert.equal(kind(aVolume({ phase: 'Failed', metadata: bare })), 'ignore');
  });

  it('adds our finalizer to a Bound volume that lacks it', () =>
    assert.equal(kind(aVolume({ phase: 'Bound', metadata: bare })), 'add-finalizer'));

  it('adds no finalizer to a Bound volume that is being deleted', () => {
    assert.equal(
      kind(aVolume({ phase: 'Bound', metadata: { ...bare, ...terminating } })),
      'ignore',
    );
  });

  it('adds no finalizer before a volume is Bound', () =>
    assert.equal(kind(aVolume({ phase: 'Available', metadata: bare })), 'ignore'));

  for (const persistentVolumeReclaimPolicy of ['Retain', 'Recycle'] as const) {
    const spec = { persistentVolumeReclaimPolicy };
    for (const phase of ['Available', 'Bound', 'Released', 'Failed']) {
      it(`removes our finalizer: ${phase}, ${persistentVolumeReclaimPolicy}`, () => {
        assert.equal(kind(aVolume({ spec, phase })), 'remove-finalizer');
      });
    }

    it(`removes our finalizer: being deleted, ${persistentVolumeReclaimPolicy}`, () => {
      assert.equal(kind(aVolume({ spec, metadata: terminating })), 'remove-finalizer');
    });
  }

  it('ignores a Released volume with policy Retain (P-62) (P-80)', () => {
    assert.equal(
      kind(aVolume({ metadata: bare, spec: { persistentVolumeReclaimPolicy: 'Retain' } })),
      'ignore',
    );
  });

  it('ignores a volume without a phase', () => {
    const { status: _, ...volume } = aVolume();
    assert.equal(kind(volume), 'ignore');
  });

  it('ignores a Released volume without a policy', () => {
    const { persistentVolumeReclaimPolicy: _, ...spec } = aVolume().spec;
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

describe('recordId', () => {
  it('is the PV’s UID without a claim or a name prefix', () => {
    const { claimRef: _, ...spec } = aVolume().spec;
    assert.equal(recordId({ ...aVolume(), spec }, options), 'volume-uid');
    assert.equal(
      recordId(aVolume({ metadata: { name: '-testid' } }), { ...options, volumeNamePrefix: '' }),
      'volume-uid',
    );
  });

  it('is the claim’s UID if the PV has the name that we give it', () =>
    assert.equal(recordId(aVolume(), options), 'testid'));
  it('is the PV’s UID for a static volume', () =>
    assert.equal(recordId(aVolume({ metadata: { name: 'by-hand' } }), options), 'volume-uid'));
});

describe('vanishedRecordIds', () => {
  const whole = { volumeNamePrefix: 'pvc', volumeNameUuidLength: -1 };

  it('are the PV’s UID and the claim’s UID in its name', () => {
    assert.deepEqual(vanishedRecordIds({ uid: 'u', name: 'pvc-claim-uid' }, whole), [
      'u',
      'claim-uid',
    ]);
  });

  it('are the PV’s UID alone for another name', () => {
    for (const volumeNameUuidLength of [-1, 8]) {
      assert.deepEqual(
        vanishedRecordIds({ uid: 'u', name: 'by-hand' }, { ...whole, volumeNameUuidLength }),
        ['u'],
      );
    }
  });

  it('are unknown for a shortened UID', () => {
    assert.equal(
      vanishedRecordIds({ uid: 'u', name: 'pvc-12345678' }, { ...whole, volumeNameUuidLength: 8 }),
      undefined,
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

  it('chooses the annotated secret, whatever the class names now (F-12) (F-14)', () => {
    const volume = volumeWith({ [NAME]: 'n', [NAMESPACE]: 's' });
    assert.deepEqual(chooseSecret(volume, driver, classWith({ parameters: ofClass('other') })), {
      ref: { name: 'n', namespace: 's' },
    });
  });

  it('chooses the annotated secret if the class is gone (F-13)', () => {
    assert.deepEqual(chooseSecret(volumeWith({ [NAME]: 'n', [NAMESPACE]: 's' }), driver, gone), {
      ref: { name: 'n', namespace: 's' },
    });
  });

  it('chooses none if both annotations are empty (F-10) (F-11)', () => {
    const volume = volumeWith({ [NAME]: '', [NAMESPACE]: '' });
    assert.deepEqual(chooseSecret(volume, driver, classWith({ parameters: ofClass('n') })), {});
    assert.deepEqual(chooseSecret(volume, driver, gone), {});
  });

  it('chooses none if one annotation is empty, whatever the class (R-20)', () => {
    for (const [name, namespace] of [
      ['n', ''],
      ['', 's'],
    ] as const) {
      assert.deepEqual(
        chooseSecret(volumeWith({ [NAME]: name, [NAMESPACE]: namespace }), driver, never),
        {},
      );
    }
  });

  it('uses the class if an annotation is missing', () => {
    for (const annotations of [{}, { [NAME]: 'n' }, { [NAMESPACE]: 's' }]) {
      const choice = chooseSecret(
        volumeWith(annotations),
        driver,
        classWith({ parameters: ofClass('of-class') }),
      );
      assert.deepEqual(choice, { ref: { name: 'of-class', namespace: 'vault' } });
    }
  });

  it('uses the class if there are no annotations', () => {
    const { annotations: _, ...metadata } = aVolume().metadata;
    const volume = { ...volumeWith({}), metadata };
    assert.deepEqual(chooseSecret(volume, driver, classWith({ parameters: ofClass('n') })), {
      ref: { name: 'n', namespace: 'vault' },
    });
  });

  it('chooses none for a volume without a class (F-07) (F-09)', () => {
    assert.deepEqual(chooseSecret(volumeWith({}, {}), driver, never), {});
    assert.deepEqual(chooseSecret(volumeWith({}, { storageClassName: '' }), driver, never), {});
  });

  it('uses the class of the beta annotation before that of the field (F-16)', () => {
    const volume = volumeWith(
      { 'volume.beta.kubernetes.io/storage-class': 'class' },
      { storageClassName: 'another' },
    );
    assert.deepEqual(chooseSecret(volume, driver, classWith({ parameters: ofClass('n') })), {
      ref: { name: 'n', namespace: 'vault' },
    });
  });

  it('chooses none if the class is gone, with a note', () => {
    assert.deepEqual(chooseSecret(volumeWith({}), driver, gone), {
      note: 'storageClass "class" not found',
    });
  });

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

  it('chooses none if the class names none', () => {
    const { parameters: _, ...bare } = aClass();
    assert.deepEqual(chooseSecret(volumeWith({}), driver, classWith({})), {});
    assert.deepEqual(
      chooseSecret(volumeWith({}), driver, () => bare),
      {},
    );
  });

  it('fills in volume and claim, and falls back to the default secret', () => {
    const parameters = {
      'csi.storage.k8s.io/secret-name': '${pv.name}-${pvc.name}',
      'csi.storage.k8s.io/secret-namespace': '${pvc.namespace}',
    };
    assert.deepEqual(chooseSecret(volumeWith({}), driver, classWith({ parameters })), {
      ref: { name: 'test-testi-claim', namespace: 'space' },
    });
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
