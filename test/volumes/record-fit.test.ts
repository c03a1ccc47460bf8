import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { create, toBinary } from '@bufbuild/protobuf';
import { CreateVolumeRequestSchema } from '#src/csi/generated/csi_pb.ts';
import type { Class } from '#src/kube/objects.ts';
import type { SecretRef } from '#src/volumes/secret-ref.ts';
import { type RecordOwner, whyUnfit } from '#src/volumes/record-fit.ts';

const DRIVER = 'd.example';
const NAME = 'pvc-u1';
const requestFor = (name: string): Uint8Array =>
  toBinary(CreateVolumeRequestSchema, create(CreateVolumeRequestSchema, { name }));

/** A stored request that fits, but for what the test changes. */
function stored(
  o: {
    readonly name?: string;
    readonly request?: Uint8Array;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly spec?: object;
    readonly csi?: object;
    readonly secret?: SecretRef;
  } = {},
): Parameters<typeof whyUnfit>[0] {
  const { name = NAME, annotations, spec, csi, secret } = o;
  return {
    request: o.request ?? requestFor(name),
    secret,
    pvTemplate: {
      requestedBytes: '0',
      identity: '',
      volume: {
        apiVersion: 'v1',
        kind: 'PersistentVolume',
        metadata: { name, ...(annotations === undefined ? {} : { annotations }) },
        spec: {
          claimRef: { namespace: 'ns', name: 'data', uid: 'u1' },
          storageClassName: 'gold',
          csi: { driver: DRIVER, volumeHandle: '', ...csi },
          ...spec,
        },
      },
    },
  };
}

function owner(cls: Partial<Class> = {}, o: Partial<RecordOwner> = {}): RecordOwner {
  const gold: Class = {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name: 'gold', uid: 'class' },
    provisioner: DRIVER,
    ...cls,
  } as Class;
  return {
    driver: { name: DRIVER },
    options: { volumeNamePrefix: 'pvc', volumeNameUuidLength: -1 },
    claim: { uid: 'u1', namespace: 'ns', name: 'data', annotations: {} },
    className: 'gold',
    classOf: (name) => (name === 'gold' ? gold : undefined),
    ...o,
  };
}

const SECRET = { name: 'login', namespace: 'storage' };
const GIVES_LOGIN: Partial<Class> = {
  parameters: {
    'csi.storage.k8s.io/provisioner-secret-name': 'login',
    'csi.storage.k8s.io/provisioner-secret-namespace': 'storage',
  },
};

describe('a stored request', () => {
  it('fits the claim that it was planned for, also under a prefix of before', () => {
    assert.equal(whyUnfit(stored(), owner()), undefined);
    assert.equal(whyUnfit(stored({ name: 'old-u1' }), owner()), undefined);
    const short = owner({}, { options: { volumeNamePrefix: 'v', volumeNameUuidLength: 1 } });
    assert.equal(whyUnfit(stored({ name: 'v-u' }), short), undefined);
  });

  for (const [what, why, changed] of [
    ['driver', /^it is for driver other/, stored({ csi: { driver: 'other' } })],
    [
      'claim UID',
      /^it is for claim ns\/data with UID u2$/,
      stored({ spec: { claimRef: { namespace: 'ns', name: 'data', uid: 'u2' } } }),
    ],
    [
      'namespace of its claim',
      /^it is for claim b\/data/,
      stored({ spec: { claimRef: { namespace: 'b', name: 'data', uid: 'u1' } } }),
    ],
    [
      'name of its claim',
      /^it is for claim ns\/other/,
      stored({ spec: { claimRef: { namespace: 'ns', name: 'other', uid: 'u1' } } }),
    ],
    ['claim', /with UID undefined$/, stored({ spec: { claimRef: undefined } })],
    ['PersistentVolume', /^its PersistentVolume is pvc-u2/, stored({ name: 'pvc-u2' })],
    ['volume name', /^its request names another/, stored({ request: requestFor('pvc-u2') })],
    ['encoding', /^its request names another/, stored({ request: Buffer.from([0xff]) })],
    ['field', /^its PersistentVolume has spec\.nfs$/, stored({ spec: { nfs: {} } })],
  ] as const)
    it(`does not fit by its ${what}`, () => assert.match(whyUnfit(changed, owner()) ?? '', why));

  it('fits if the class gives its secret today', () => {
    const annotations = {
      'volume.kubernetes.io/provisioner-deletion-secret-name': 'login',
      'volume.kubernetes.io/provisioner-deletion-secret-namespace': 'storage',
    };
    const one = stored({ secret: SECRET, annotations });
    assert.equal(whyUnfit(one, owner(GIVES_LOGIN)), undefined);
    assert.equal(whyUnfit(one, owner(GIVES_LOGIN, { className: undefined })), undefined);
  });

  it('fits with the secret of a class of the in-tree plug-in', () => {
    const migrated = owner(
      { ...GIVES_LOGIN, provisioner: 'kubernetes.io/portworx-volume' },
      { driver: { name: DRIVER, inTreeName: 'kubernetes.io/portworx-volume' } },
    );
    assert.equal(whyUnfit(stored({ secret: SECRET }), migrated), undefined);
  });

  it('does not fit with a secret that the class does not give', () => {
    const foreign = stored({ secret: { name: 'login', namespace: 'victim' } });
    assert.match(
      whyUnfit(foreign, owner(GIVES_LOGIN)) ?? '',
      /^it names secret victim\/login \(Provisioner\), which StorageClass gold does not give today$/,
    );
    const modify = stored({
      annotations: {
        'volume.kubernetes.io/controller-modify-secret-name': 'login',
        'volume.kubernetes.io/controller-modify-secret-namespace': 'victim',
      },
    });
    assert.match(whyUnfit(modify, owner()) ?? '', /\(ControllerModify\)/);
    const stage = stored({ csi: { nodeStageSecretRef: SECRET } });
    assert.match(whyUnfit(stage, owner()) ?? '', /\(NodeStage\)/);
    const half = stored({
      annotations: { 'volume.kubernetes.io/controller-modify-secret-name': 'login' },
    });
    assert.equal(whyUnfit(half, owner()), undefined);
  });

  it('fits a claim that is gone by the secret of CreateVolume alone', () => {
    const gone = { claim: { uid: 'u1', namespace: 'ns', name: 'data' } };
    const parameters = {
      ...GIVES_LOGIN.parameters,
      'csi.storage.k8s.io/node-publish-secret-name': "${pvc.annotations['team/key']}",
      'csi.storage.k8s.io/node-publish-secret-namespace': 'storage',
    };
    const one = stored({ secret: SECRET, csi: { nodePublishSecretRef: SECRET } });
    assert.equal(whyUnfit(one, owner({ parameters }, gone)), undefined);
    const foreign = stored({ secret: { name: 'login', namespace: 'victim' } });
    assert.match(whyUnfit(foreign, owner({ parameters }, gone)) ?? '', /victim\/login/);
  });

  it('fits by the secrets that its PV has, also without a class', () => {
    const annotations = {
      'volume.kubernetes.io/provisioner-deletion-secret-name': 'login',
      'volume.kubernetes.io/provisioner-deletion-secret-namespace': 'storage',
    };
    const { volume } = stored({ annotations }).pvTemplate;
    const { metadata, spec } = volume;
    const live = { metadata: { ...metadata, uid: 'pv', resourceVersion: '1' }, spec };
    const without = { className: 'gone', volume: live };
    assert.equal(whyUnfit(stored({ secret: SECRET }), owner({}, without)), undefined);
    const { csi: _, ...inTreeSpec } = spec;
    const inTree = { metadata: live.metadata, spec: inTreeSpec };
    const named = owner({}, { className: 'gone', volume: inTree });
    assert.equal(whyUnfit(stored({ secret: SECRET }), named), undefined);
  });

  it('does not fit with a secret where there is no class of the driver', () => {
    const one = stored({ secret: SECRET });
    for (const other of [
      owner(GIVES_LOGIN, { className: 'gone' }),
      owner({ ...GIVES_LOGIN, provisioner: 'other' }),
    ])
      assert.match(whyUnfit(one, other) ?? '', /and this driver has no StorageClass (gold|gone)$/);
    const classless = stored({ secret: SECRET, spec: { storageClassName: undefined } });
    assert.match(whyUnfit(classless, owner({}, { className: undefined })) ?? '', /StorageClass $/);
  });

  it('does not fit with a secret of a class whose templates can’t be resolved', () => {
    const broken = { parameters: { 'csi.storage.k8s.io/provisioner-secret-name': 'login' } };
    const why = whyUnfit(stored({ secret: SECRET }), owner(broken)) ?? '';
    assert.match(why, /^it names a secret, and StorageClass gold gives none: /);
  });
});
