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
const modes = async (given: Given): Promise<(Mode | undefined)[]> =>
  (await planCreation(given)).request.volumeCapabilities.map(({ accessMode }) => accessMode?.mode);

describe('the CreateVolume request', () => {
  it('has the volume’s name and the claim’s bytes', async () => {
    const { plan, request } = await planCreation();
    assert.equal(plan.volume.metadata.name, 'test-testi');
    assert.equal(request.name, 'test-testi');
    assert.equal(request.capacityRange?.requiredBytes, 100n);
    assert.equal(request.capacityRange?.limitBytes, 0n);
  });

  it('has nothing that a plain claim does not ask for', async () => {
    const { request } = await planCreation();
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

  it('is the same for missing and for empty parameters and annotations', async () => {
    const { parameters: _, ...cls } = aClass();
    const { annotations: __, ...metadata } = aClaim().metadata;
    assert.deepEqual(
      (await planCreation({ cls, claim: { ...aClaim(), metadata } })).plan,
      (await planCreation()).plan,
    );
  });

  it('needs nothing from the API server for a plain class', async () =>
    assert.deepEqual((await runPlan()).steps, []));

  it('rounds the bytes up', async () => {
    const claim = aClaim({ spec: { resources: { requests: { storage: '1500m' } } } });
    assert.equal((await planCreation({ claim })).request.capacityRange?.requiredBytes, 2n);
  });

  it('has 0 bytes if the claim names no size', async () => {
    for (const resources of [undefined, {}, { requests: {} }]) {
      const { resources: _, ...spec } = aClaim().spec;
      const claim = {
        ...aClaim(),
        spec: { ...spec, ...(resources === undefined ? {} : { resources }) },
      };
      assert.equal((await planCreation({ claim })).request.capacityRange?.requiredBytes, 0n);
    }
  });

  it('can’t have 1Zi bytes or a negative size; the refusal names the field', async () => {
    const asking = async (storage: string) =>
      (await planRefusal({ claim: aClaim({ spec: { resources: { requests: { storage } } } }) }))
        .message;
    assert.match(await asking('1Zi'), /^spec\.resources\.requests\.storage: "1Zi": unknown unit/);
    assert.equal(await asking('-1'), 'spec.resources.requests.storage: -1 is negative');
  });

  it('never contains a secret’s values; the plan has the reference', async () => {
    const parameters = {
      [`${N}provisioner-secret-name`]: 's',
      [`${N}provisioner-secret-namespace`]: 'n',
    };
    const { plan, request } = await planCreation({ cls: aClass({ parameters }) });
    assert.deepEqual(request.secrets, {});
    assert.deepEqual(plan.secret, { name: 's', namespace: 'n' });
  });
});

describe('the file system', () => {
  it('is the class’s, and the PV has both deletion annotations empty (B-01)', async () => {
    const given = withFsType('ext3');
    const volume = await completePv(given);
    assert.equal(volume.metadata.name, 'test-testi');
    assert.equal(volume.spec.csi?.fsType, 'ext3');
    assert.deepEqual(volume.metadata.annotations, {
      'pv.kubernetes.io/provisioned-by': 'test-driver',
      'volume.kubernetes.io/provisioner-deletion-secret-name': '',
      'volume.kubernetes.io/provisioner-deletion-secret-namespace': '',
    });
    assert.deepEqual((await planCreation(given)).request.parameters, { fstype: 'ext3' });
  });

  it('is sent with the names that --extra-create-metadata adds (B-02)', async () => {
    assert.deepEqual(
      (await planCreation({ ...withFsType('ext3'), options: { extraCreateMetadata: true } }))
        .request.parameters,
      {
        [`${N}pvc/name`]: 'claim',
        [`${N}pvc/namespace`]: 'space',
        [`${N}pv/name`]: 'test-testi',
        fstype: 'ext3',
      },
    );
  });

  it('can’t be named under both keys (B-03)', async () => {
    const cls = aClass({ parameters: { fstype: 'ext3', [`${N}fstype`]: 'ext4' } });
    assert.deepEqual(await planRefusal({ cls }), {
      kind: 'refuse',
      message:
        'fstype specified in parameters with both "fstype" and "csi.storage.k8s.io/fstype" keys',
      waitsFor: [],
    });
  });

  it('is not sent as a parameter under the reserved key (B-04)', async () => {
    const given = { cls: aClass({ parameters: { [`${N}fstype`]: 'ext3' } }) };
    assert.equal((await completePv(given)).spec.csi?.fsType, 'ext3');
    assert.deepEqual((await planCreation(given)).request.parameters, {});
  });

  it('is the default if the class names none (B-42)', async () =>
    assert.equal((await completePv()).spec.csi?.fsType, 'ext4'));

  it('is the class’s if there is a default too (B-43)', async () =>
    assert.equal((await completePv(withFsType('xfs'))).spec.csi?.fsType, 'xfs'));

  it('is empty if neither class nor flag name one (B-44)', async () => {
    assert.equal(
      (await completePv({ options: { defaultFstype: '' } })).spec.csi?.fsType,
      undefined,
    );
  });

  it('is the class’s if there is no default (B-45)', async () => {
    assert.equal(
      (await completePv({ ...withFsType('xfs'), options: { defaultFstype: '' } })).spec.csi?.fsType,
      'xfs',
    );
  });
});

describe('the access modes of a claim', () => {
  const rox = claimFor('ReadOnlyMany');
  const mixed = claimFor('ReadOnlyMany', 'ReadWriteOnce');
  const readonlyFlag = { controllerPublishReadonly: true };

  it('RWX: one capability, and the PV has the mode (B-05)', async () => {
    const given = { claim: claimFor('ReadWriteMany') };
    assert.deepEqual(await modes(given), [Mode.MULTI_NODE_MULTI_WRITER]);
    const { spec } = await completePv(given);
    assert.deepEqual(spec.accessModes, ['ReadWriteMany']);
    assert.equal(spec.csi?.fsType, 'ext4');
  });

  it('ROX: one capability; the PV is not read-only without the flag (B-06)', async () => {
    assert.deepEqual(await modes({ claim: rox }), [Mode.MULTI_NODE_READER_ONLY]);
    assert.equal((await completePv({ claim: rox })).spec.csi?.readOnly, undefined);
  });

  it('ROX: the PV is read-only with --controller-publish-readonly (B-07)', async () => {
    const given = { claim: rox, options: readonlyFlag };
    assert.deepEqual(await modes(given), [Mode.MULTI_NODE_READER_ONLY]);
    assert.equal((await completePv(given)).spec.csi?.readOnly, true);
  });

  it('RWO becomes SINGLE_NODE_WRITER (B-08)', async () =>
    assert.deepEqual(await modes({ claim: claimFor('ReadWriteOnce') }), [Mode.SINGLE_NODE_WRITER]));

  it('RWO: many writers on one node, if the driver supports that (B-09)', async () => {
    const fine = withCapability('SINGLE_NODE_MULTI_WRITER');
    assert.deepEqual(await modes({ claim: claimFor('ReadWriteOnce'), driver: fine }), [
      Mode.SINGLE_NODE_MULTI_WRITER,
    ]);
  });

  it('RWOP: one writer on one node, if the driver supports that (B-10)', async () => {
    const fine = withCapability('SINGLE_NODE_MULTI_WRITER');
    assert.deepEqual(await modes({ claim: claimFor('ReadWriteOncePod'), driver: fine }), [
      Mode.SINGLE_NODE_SINGLE_WRITER,
    ]);
  });

  it('ROX and RWO: two capabilities in that order, not read-only (B-11)', async () => {
    assert.deepEqual(await modes({ claim: mixed }), [
      Mode.MULTI_NODE_READER_ONLY,
      Mode.SINGLE_NODE_WRITER,
    ]);
    assert.equal((await completePv({ claim: mixed })).spec.csi?.readOnly, undefined);
  });

  it('ROX as a block device is read-only with the flag, too (R-16)', async () => {
    const claim = aClaim({ spec: { accessModes: ['ReadOnlyMany'], volumeMode: 'Block' } });
    assert.equal((await completePv({ claim, options: readonlyFlag })).spec.csi?.readOnly, true);
  });

  it('ROX and RWO are not read-only with the flag, either (R-17)', async () => {
    assert.equal(
      (await completePv({ claim: mixed, options: readonlyFlag })).spec.csi?.readOnly,
      undefined,
    );
  });

  it('RWX is not read-only with the flag', async () => {
    assert.equal(
      (await completePv({ claim: claimFor('ReadWriteMany'), options: readonlyFlag })).spec.csi
        ?.readOnly,
      undefined,
    );
  });
});

describe('the volume mode of a claim', () => {
  it('Filesystem is also the PV’s, with a file system (B-15)', async () => {
    const { spec } = await completePv({ claim: aClaim({ spec: { volumeMode: 'Filesystem' } }) });
    assert.equal(spec.volumeMode, 'Filesystem');
    assert.equal(spec.csi?.fsType, 'ext4');
  });

  it('Block is also the PV’s, without a file system (B-16)', async () => {
    const given = { claim: aClaim({ spec: { volumeMode: 'Block' } }) };
    assert.equal(
      (await planCreation(given)).request.volumeCapabilities[0]?.accessType.case,
      'block',
    );
    const { spec } = await completePv(given);
    assert.equal(spec.volumeMode, 'Block');
    assert.equal(spec.csi?.fsType, undefined);
  });

  it('is missing in the PV if the claim names none', async () =>
    assert.equal((await completePv()).spec.volumeMode, undefined));
});

describe('the mount options of a class', () => {
  it('are the flags of the capability and the PV’s (B-23)', async () => {
    const given = { cls: aClass({ mountOptions: ['foo=bar', 'baz=qux'] }) };
    const type = (await planCreation(given)).request.volumeCapabilities[0]?.accessType;
    assert.ok(type?.case === 'mount');
    assert.deepEqual(type.value.mountFlags, ['foo=bar', 'baz=qux']);
    assert.deepEqual((await completePv(given)).spec.mountOptions, ['foo=bar', 'baz=qux']);
  });

  it('are also in the PV of a block device', async () => {
    const given = {
      cls: aClass({ mountOptions: ['foo'] }),
      claim: aClaim({ spec: { volumeMode: 'Block' } }),
    };
    assert.deepEqual((await completePv(given)).spec.mountOptions, ['foo']);
  });
});

describe('a claim for a populator', () => {
  const claim = aClaim({
    spec: { dataSource: { apiGroup: 'my.example.io', kind: 'MyPopulator', name: 'p' } },
  });

  it('is left to the populator (B-27)', async () => {
    assert.deepEqual((await runPlan({ claim })).value, { kind: 'populator' });
  });

  it('is left to the populator if only dataSourceRef names it', async () => {
    const referring = aClaim({
      spec: { dataSourceRef: { apiGroup: 'my.example.io', kind: 'MyPopulator', name: 'p' } },
    });
    assert.deepEqual((await runPlan({ claim: referring })).value, {
      kind: 'populator',
    });
  });

  it('is left to the populator before all other checks', async () => {
    const odd = aClaim({ spec: { ...claim.spec, selector: {}, accessModes: ['Other'] } });
    assert.equal((await runPlan({ claim: odd })).value?.kind, 'populator');
  });
});
