import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { VolumeCapability_AccessMode_Mode as Mode } from '#src/csi/generated/csi_pb.ts';
import { aClaim, aClass } from './builders.ts';
import {
  claimFor,
  created,
  planned,
  refused,
  volumeOf,
  withCapability,
  type Given,
} from './plans.ts';

const N = 'csi.storage.k8s.io/';
const withFsType = (fstype: string): Given => ({ cls: aClass({ parameters: { fstype } }) });
const modes = (given: Given): (Mode | undefined)[] =>
  created(given).request.volumeCapabilities.map(({ accessMode }) => accessMode?.mode);

describe('what the driver is asked', () => {
  it('is the claim’s bytes under the volume’s name', () => {
    const { plan, request } = created();
    assert.equal(plan.name, 'test-testi');
    assert.equal(request.name, 'test-testi');
    assert.equal(request.capacityRange?.requiredBytes, 100n);
    assert.equal(request.capacityRange?.limitBytes, 0n);
  });

  it('is nothing that a plain claim does not ask for', () => {
    const { request } = created();
    assert.deepEqual(
      [
        request.secrets,
        request.parameters,
        request.mutableParameters,
        request.volumeContentSource,
        request.accessibilityRequirements,
      ],
      [{}, {}, {}, undefined, undefined],
    );
  });

  it('is the same for a class without parameters and a claim without annotations as for empty ones', () => {
    const { parameters: _, ...cls } = aClass();
    const { annotations: __, ...metadata } = aClaim().metadata;
    assert.deepEqual(created({ cls, claim: { ...aClaim(), metadata } }).plan, created().plan);
  });

  it('needs nothing from the API server for a plain class', () =>
    assert.deepEqual(planned().steps, []));

  it('is a whole number of bytes, rounded up', () => {
    const claim = aClaim({ spec: { resources: { requests: { storage: '1500m' } } } });
    assert.equal(created({ claim }).request.capacityRange?.requiredBytes, 2n);
  });

  it('is 0 bytes where the claim names no size', () => {
    for (const resources of [undefined, {}, { requests: {} }]) {
      const { resources: _, ...spec } = aClaim().spec;
      const claim = {
        ...aClaim(),
        spec: { ...spec, ...(resources === undefined ? {} : { resources }) },
      };
      assert.equal(created({ claim }).request.capacityRange?.requiredBytes, 0n);
    }
  });

  it('can’t be 1Zi bytes or fewer than none; the refusal names the field', () => {
    const asking = (storage: string) =>
      refused({ claim: aClaim({ spec: { resources: { requests: { storage } } } }) }).message;
    assert.match(asking('1Zi'), /^spec\.resources\.requests\.storage: "1Zi": unknown unit/);
    assert.equal(asking('-1'), 'spec.resources.requests.storage: -1 is negative');
  });

  it('never holds a secret’s values, only who they are for', () => {
    const parameters = {
      [`${N}provisioner-secret-name`]: 's',
      [`${N}provisioner-secret-namespace`]: 'n',
    };
    const { plan, request } = created({ cls: aClass({ parameters }) });
    assert.deepEqual(request.secrets, {});
    assert.deepEqual(plan.secret, { name: 's', namespace: 'n' });
  });
});

describe('the file system', () => {
  it('is the class’s; the PV is annotated with the two deletion keys, both empty (B-01)', () => {
    const given = withFsType('ext3');
    const volume = volumeOf(given);
    assert.equal(volume.metadata.name, 'test-testi');
    assert.equal(volume.spec.csi?.fsType, 'ext3');
    assert.deepEqual(volume.metadata.annotations, {
      'pv.kubernetes.io/provisioned-by': 'test-driver',
      'volume.kubernetes.io/provisioner-deletion-secret-name': '',
      'volume.kubernetes.io/provisioner-deletion-secret-namespace': '',
    });
    assert.deepEqual(created(given).request.parameters, { fstype: 'ext3' });
  });

  it('is sent along with the names of claim and volume under --extra-create-metadata (B-02)', () => {
    assert.deepEqual(
      created({ ...withFsType('ext3'), options: { extraCreateMetadata: true } }).request.parameters,
      {
        [`${N}pvc/name`]: 'claim',
        [`${N}pvc/namespace`]: 'space',
        [`${N}pv/name`]: 'test-testi',
        fstype: 'ext3',
      },
    );
  });

  it('can’t be named under both keys (B-03)', () => {
    const cls = aClass({ parameters: { fstype: 'ext3', [`${N}fstype`]: 'ext4' } });
    assert.deepEqual(refused({ cls }), {
      kind: 'refuse',
      message:
        'fstype specified in parameters with both "fstype" and "csi.storage.k8s.io/fstype" keys',
      waitsFor: [],
    });
  });

  it('is not sent as a parameter under the reserved key (B-04)', () => {
    const given = { cls: aClass({ parameters: { [`${N}fstype`]: 'ext3' } }) };
    assert.equal(volumeOf(given).spec.csi?.fsType, 'ext3');
    assert.deepEqual(created(given).request.parameters, {});
  });

  it('is the default where the class names none (B-42)', () =>
    assert.equal(volumeOf().spec.csi?.fsType, 'ext4'));

  it('is the class’s where there is a default too (B-43)', () =>
    assert.equal(volumeOf(withFsType('xfs')).spec.csi?.fsType, 'xfs'));

  it('is none where neither class nor flag name one (B-44)', () => {
    assert.equal(volumeOf({ options: { defaultFsType: '' } }).spec.csi?.fsType, undefined);
  });

  it('is the class’s where there is no default (B-45)', () => {
    assert.equal(
      volumeOf({ ...withFsType('xfs'), options: { defaultFsType: '' } }).spec.csi?.fsType,
      'xfs',
    );
  });
});

describe('the access modes of a claim', () => {
  const rox = claimFor('ReadOnlyMany');
  const mixed = claimFor('ReadOnlyMany', 'ReadWriteOnce');
  const readonlyFlag = { controllerPublishReadonly: true };

  it('RWX: one capability, and the PV has the mode (B-05)', () => {
    const given = { claim: claimFor('ReadWriteMany') };
    assert.deepEqual(modes(given), [Mode.MULTI_NODE_MULTI_WRITER]);
    const { spec } = volumeOf(given);
    assert.deepEqual(spec.accessModes, ['ReadWriteMany']);
    assert.equal(spec.csi?.fsType, 'ext4');
  });

  it('ROX: one capability; the PV is not read-only without the flag (B-06)', () => {
    assert.deepEqual(modes({ claim: rox }), [Mode.MULTI_NODE_READER_ONLY]);
    assert.equal(volumeOf({ claim: rox }).spec.csi?.readOnly, undefined);
  });

  it('ROX: the PV is read-only with --controller-publish-readonly (B-07)', () => {
    const given = { claim: rox, options: readonlyFlag };
    assert.deepEqual(modes(given), [Mode.MULTI_NODE_READER_ONLY]);
    assert.equal(volumeOf(given).spec.csi?.readOnly, true);
  });

  it('RWO: a single writer (B-08)', () =>
    assert.deepEqual(modes({ claim: claimFor('ReadWriteOnce') }), [Mode.SINGLE_NODE_WRITER]));

  it('RWO: many writers on one node, if the driver has that (B-09)', () => {
    const fine = withCapability('SINGLE_NODE_MULTI_WRITER');
    assert.deepEqual(modes({ claim: claimFor('ReadWriteOnce'), driver: fine }), [
      Mode.SINGLE_NODE_MULTI_WRITER,
    ]);
  });

  it('RWOP: one writer on one node, if the driver has that (B-10)', () => {
    const fine = withCapability('SINGLE_NODE_MULTI_WRITER');
    assert.deepEqual(modes({ claim: claimFor('ReadWriteOncePod'), driver: fine }), [
      Mode.SINGLE_NODE_SINGLE_WRITER,
    ]);
  });

  it('ROX and RWO: two capabilities in that order, and no word of read-only (B-11)', () => {
    assert.deepEqual(modes({ claim: mixed }), [
      Mode.MULTI_NODE_READER_ONLY,
      Mode.SINGLE_NODE_WRITER,
    ]);
    assert.equal(volumeOf({ claim: mixed }).spec.csi?.readOnly, undefined);
  });

  it('ROX as a block device is read-only with the flag, too (R-16)', () => {
    const claim = aClaim({ spec: { accessModes: ['ReadOnlyMany'], volumeMode: 'Block' } });
    assert.equal(volumeOf({ claim, options: readonlyFlag }).spec.csi?.readOnly, true);
  });

  it('ROX and RWO are not read-only with the flag, either (R-17)', () => {
    assert.equal(volumeOf({ claim: mixed, options: readonlyFlag }).spec.csi?.readOnly, undefined);
  });

  it('RWX is not read-only with the flag', () => {
    assert.equal(
      volumeOf({ claim: claimFor('ReadWriteMany'), options: readonlyFlag }).spec.csi?.readOnly,
      undefined,
    );
  });
});

describe('the volume mode of a claim', () => {
  it('Filesystem is the PV’s, with a file system (B-15)', () => {
    const { spec } = volumeOf({ claim: aClaim({ spec: { volumeMode: 'Filesystem' } }) });
    assert.equal(spec.volumeMode, 'Filesystem');
    assert.equal(spec.csi?.fsType, 'ext4');
  });

  it('Block is the PV’s, without a file system (B-16)', () => {
    const given = { claim: aClaim({ spec: { volumeMode: 'Block' } }) };
    assert.equal(created(given).request.volumeCapabilities[0]?.accessType.case, 'block');
    const { spec } = volumeOf(given);
    assert.equal(spec.volumeMode, 'Block');
    assert.equal(spec.csi?.fsType, undefined);
  });

  it('that is not named is not the PV’s either', () =>
    assert.equal(volumeOf().spec.volumeMode, undefined));
});

describe('the mount options of a class', () => {
  it('are the flags of the capability and the PV’s (B-23)', () => {
    const given = { cls: aClass({ mountOptions: ['foo=bar', 'baz=qux'] }) };
    const type = created(given).request.volumeCapabilities[0]?.accessType;
    assert.ok(type?.case === 'mount');
    assert.deepEqual(type.value.mountFlags, ['foo=bar', 'baz=qux']);
    assert.deepEqual(volumeOf(given).spec.mountOptions, ['foo=bar', 'baz=qux']);
  });

  it('are the PV’s of a block device too', () => {
    const given = {
      cls: aClass({ mountOptions: ['foo'] }),
      claim: aClaim({ spec: { volumeMode: 'Block' } }),
    };
    assert.deepEqual(volumeOf(given).spec.mountOptions, ['foo']);
  });
});

describe('a claim for a populator', () => {
  const claim = aClaim({
    spec: { dataSource: { apiGroup: 'my.example.io', kind: 'MyPopulator', name: 'p' } },
  });

  it('is left to it (B-27)', () => {
    assert.deepEqual(planned({ claim }).value, { kind: 'populator', sourceKind: 'MyPopulator' });
  });

  it('is left to it where only dataSourceRef names it', () => {
    const referring = aClaim({
      spec: { dataSourceRef: { apiGroup: 'my.example.io', kind: 'MyPopulator', name: 'p' } },
    });
    assert.deepEqual(planned({ claim: referring }).value, {
      kind: 'populator',
      sourceKind: 'MyPopulator',
    });
  });

  it('is left to it before anything else about the claim is looked at', () => {
    const odd = aClaim({ spec: { ...claim.spec, selector: {}, accessModes: ['Other'] } });
    assert.equal(planned({ claim: odd }).value?.kind, 'populator');
  });
});
