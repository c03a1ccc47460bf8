import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { VolumeCapability_AccessMode_Mode as Mode } from '#src/csi/generated/csi_pb.ts';
import { aClaim, aClass } from './builders.ts';
import {
  claimFor,
  completePv,
  type Given,
  planCreation,
  planRefusal,
  runPlan,
  withCapability,
} from './plans.ts';

const N = 'csi.storage.k8s.io/';
const withFsType = (fstype: string): Given => ({ cls: aClass({ parameters: { fstype } }) });
const modes = (given: Given): (Mode | undefined)[] =>
  planCreation(given).request.volumeCapabilities.map(({ accessMode }) => accessMode?.mode);

describe('the CreateVolume request', () => {
  it('has the volume’s name and the claim’s bytes', () => {
    const { plan, request } = planCreation();
    assert.equal(plan.name, 'test-testi');
    assert.equal(request.name, 'test-testi');
    assert.equal(request.capacityRange?.requiredBytes, 100n);
    assert.equal(request.capacityRange?.limitBytes, 0n);
  });

  it('has nothing that a plain claim does not ask for', () => {
    const { request } = planCreation();
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

  it('is the same for missing and for empty parameters and annotations', () => {
    const { parameters: _, ...cls } = aClass();
    const { annotations: __, ...metadata } = aClaim().metadata;
    assert.deepEqual(
      planCreation({ cls, claim: { ...aClaim(), metadata } }).plan,
      planCreation().plan,
    );
  });

  it('needs nothing from the API server for a plain class', () =>
    assert.deepEqual(runPlan().steps, []));

  it('rounds the bytes up', () => {
    const claim = aClaim({ spec: { resources: { requests: { storage: '1500m' } } } });
    assert.equal(planCreation({ claim }).request.capacityRange?.requiredBytes, 2n);
  });

  it('has 0 bytes if the claim names no size', () => {
    for (const resources of [undefined, {}, { requests: {} }]) {
      const { resources: _, ...spec } = aClaim().spec;
      const claim = {
        ...aClaim(),
        spec: { ...spec, ...(resources === undefined ? {} : { resources }) },
      };
      assert.equal(planCreation({ claim }).request.capacityRange?.requiredBytes, 0n);
    }
  });

  it('can’t have 1Zi bytes or a negative size; the refusal names the field', () => {
    const asking = (storage: string) =>
      planRefusal({ claim: aClaim({ spec: { resources: { requests: { storage } } } }) }).message;
    assert.match(asking('1Zi'), /^spec\.resources\.requests\.storage: "1Zi": unknown unit/);
    assert.equal(asking('-1'), 'spec.resources.requests.storage: -1 is negative');
  });

  it('never contains a secret’s values; the plan has the reference', () => {
    const parameters = {
      [`${N}provisioner-secret-name`]: 's',
      [`${N}provisioner-secret-namespace`]: 'n',
    };
    const { plan, request } = planCreation({ cls: aClass({ parameters }) });
    assert.deepEqual(request.secrets, {});
    assert.deepEqual(plan.secret, { name: 's', namespace: 'n' });
  });
});

describe('the file system', () => {
  it('is the class’s, and the PV has both deletion annotations empty (B-01)', () => {
    const given = withFsType('ext3');
    const volume = completePv(given);
    assert.equal(volume.metadata.name, 'test-testi');
    assert.equal(volume.spec.csi?.fsType, 'ext3');
    assert.deepEqual(volume.metadata.annotations, {
      'pv.kubernetes.io/provisioned-by': 'test-driver',
      'volume.kubernetes.io/provisioner-deletion-secret-name': '',
      'volume.kubernetes.io/provisioner-deletion-secret-namespace': '',
    });
    assert.deepEqual(planCreation(given).request.parameters, { fstype: 'ext3' });
  });

  it('is sent with the names that --extra-create-metadata adds (B-02)', () => {
    assert.deepEqual(
      planCreation({ ...withFsType('ext3'), options: { extraCreateMetadata: true } }).request
        .parameters,
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
    assert.deepEqual(planRefusal({ cls }), {
      kind: 'refuse',
      message:
        'fstype specified in parameters with both "fstype" and "csi.storage.k8s.io/fstype" keys',
      waitsFor: [],
    });
  });

  it('is not sent as a parameter under the reserved key (B-04)', () => {
    const given = { cls: aClass({ parameters: { [`${N}fstype`]: 'ext3' } }) };
    assert.equal(completePv(given).spec.csi?.fsType, 'ext3');
    assert.deepEqual(planCreation(given).request.parameters, {});
  });

  it('is the default if the class names none (B-42)', () =>
    assert.equal(completePv().spec.csi?.fsType, 'ext4'));

  it('is the class’s if there is a default too (B-43)', () =>
    assert.equal(completePv(withFsType('xfs')).spec.csi?.fsType, 'xfs'));

  it('is empty if neither class nor flag name one (B-44)', () => {
    assert.equal(completePv({ options: { defaultFstype: '' } }).spec.csi?.fsType, undefined);
  });

  it('is the class’s if there is no default (B-45)', () => {
    assert.equal(
      completePv({ ...withFsType('xfs'), options: { defaultFstype: '' } }).spec.csi?.fsType,
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
    const { spec } = completePv(given);
    assert.deepEqual(spec.accessModes, ['ReadWriteMany']);
    assert.equal(spec.csi?.fsType, 'ext4');
  });

  it('ROX: one capability; the PV is not read-only without the flag (B-06)', () => {
    assert.deepEqual(modes({ claim: rox }), [Mode.MULTI_NODE_READER_ONLY]);
    assert.equal(completePv({ claim: rox }).spec.csi?.readOnly, undefined);
  });

  it('ROX: the PV is read-only with --controller-publish-readonly (B-07)', () => {
    const given = { claim: rox, options: readonlyFlag };
    assert.deepEqual(modes(given), [Mode.MULTI_NODE_READER_ONLY]);
    assert.equal(completePv(given).spec.csi?.readOnly, true);
  });

  it('RWO becomes SINGLE_NODE_WRITER (B-08)', () =>
    assert.deepEqual(modes({ claim: claimFor('ReadWriteOnce') }), [Mode.SINGLE_NODE_WRITER]));

  it('RWO: many writers on one node, if the driver supports that (B-09)', () => {
    const fine = withCapability('SINGLE_NODE_MULTI_WRITER');
    assert.deepEqual(modes({ claim: claimFor('ReadWriteOnce'), driver: fine }), [
      Mode.SINGLE_NODE_MULTI_WRITER,
    ]);
  });

  it('RWOP: one writer on one node, if the driver supports that (B-10)', () => {
    const fine = withCapability('SINGLE_NODE_MULTI_WRITER');
    assert.deepEqual(modes({ claim: claimFor('ReadWriteOncePod'), driver: fine }), [
      Mode.SINGLE_NODE_SINGLE_WRITER,
    ]);
  });

  it('ROX and RWO: two capabilities in that order, not read-only (B-11)', () => {
    assert.deepEqual(modes({ claim: mixed }), [
      Mode.MULTI_NODE_READER_ONLY,
      Mode.SINGLE_NODE_WRITER,
    ]);
    assert.equal(completePv({ claim: mixed }).spec.csi?.readOnly, undefined);
  });

  it('ROX as a block device is read-only with the flag, too (R-16)', () => {
    const claim = aClaim({ spec: { accessModes: ['ReadOnlyMany'], volumeMode: 'Block' } });
    assert.equal(completePv({ claim, options: readonlyFlag }).spec.csi?.readOnly, true);
  });

  it('ROX and RWO are not read-only with the flag, either (R-17)', () => {
    assert.equal(completePv({ claim: mixed, options: readonlyFlag }).spec.csi?.readOnly, undefined);
  });

  it('RWX is not read-only with the flag', () => {
    assert.equal(
      completePv({ claim: claimFor('ReadWriteMany'), options: readonlyFlag }).spec.csi?.readOnly,
      undefined,
    );
  });
});

describe('the volume mode of a claim', () => {
  it('Filesystem is also the PV’s, with a file system (B-15)', () => {
    const { spec } = completePv({ claim: aClaim({ spec: { volumeMode: 'Filesystem' } }) });
    assert.equal(spec.volumeMode, 'Filesystem');
    assert.equal(spec.csi?.fsType, 'ext4');
  });

  it('Block is also the PV’s, without a file system (B-16)', () => {
    const given = { claim: aClaim({ spec: { volumeMode: 'Block' } }) };
    assert.equal(planCreation(given).request.volumeCapabilities[0]?.accessType.case, 'block');
    const { spec } = completePv(given);
    assert.equal(spec.volumeMode, 'Block');
    assert.equal(spec.csi?.fsType, undefined);
  });

  it('is missing in the PV if the claim names none', () =>
    assert.equal(completePv().spec.volumeMode, undefined));
});

describe('the mount options of a class', () => {
  it('are the flags of the capability and the PV’s (B-23)', () => {
    const given = { cls: aClass({ mountOptions: ['foo=bar', 'baz=qux'] }) };
    const type = planCreation(given).request.volumeCapabilities[0]?.accessType;
    assert.ok(type?.case === 'mount');
    assert.deepEqual(type.value.mountFlags, ['foo=bar', 'baz=qux']);
    assert.deepEqual(completePv(given).spec.mountOptions, ['foo=bar', 'baz=qux']);
  });

  it('are also in the PV of a block device', () => {
    const given = {
      cls: aClass({ mountOptions: ['foo'] }),
      claim: aClaim({ spec: { volumeMode: 'Block' } }),
    };
    assert.deepEqual(completePv(given).spec.mountOptions, ['foo']);
  });
});

describe('a claim for a populator', () => {
  const claim = aClaim({
    spec: { dataSource: { apiGroup: 'my.example.io', kind: 'MyPopulator', name: 'p' } },
  });

  it('is left to the populator (B-27)', () => {
    assert.deepEqual(runPlan({ claim }).value, { kind: 'populator' });
  });

  it('is left to the populator if only dataSourceRef names it', () => {
    const referring = aClaim({
      spec: { dataSourceRef: { apiGroup: 'my.example.io', kind: 'MyPopulator', name: 'p' } },
    });
    assert.deepEqual(runPlan({ claim: referring }).value, {
      kind: 'populator',
    });
  });

  it('is left to the populator before all other checks', () => {
    const odd = aClaim({ spec: { ...claim.spec, selector: {}, accessModes: ['Other'] } });
    assert.equal(runPlan({ claim: odd }).value?.kind, 'populator');
  });
});
