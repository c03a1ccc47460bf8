import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { VolumeCapability_AccessMode_Mode as Mode } from '#src/csi/generated/csi_pb.ts';
import type { Claim, Class } from '#src/kube/objects.ts';
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
const claimOf = (spec: Partial<Claim['spec']>): Given => ({ claim: aClaim({ spec }) });
const classOf = (change: Partial<Class>): Given => ({ cls: aClass(change) });
const withFsType = (fstype: string): Given => classOf({ parameters: { fstype } });
const requestOf = async (given?: Given) => (await planCreation(given)).request;
const bytesOf = async (given: Given) => (await requestOf(given)).capacityRange?.requiredBytes;
const csiOf = async (given?: Given) => (await completePv(given)).spec.csi;
describe('the CreateVolume request', () => {
  it('has the volume’s name, the claim’s bytes, and nothing else', async () => {
    const { $typeName: _, capacityRange, volumeCapabilities: __, ...rest } = await requestOf();
    assert.deepEqual(
      [capacityRange?.requiredBytes, capacityRange?.limitBytes, rest],
      [100n, 0n, { name: 'test-testi', secrets: {}, parameters: {}, mutableParameters: {} }],
    );
  });

  it('is the same for missing and for empty parameters and annotations', async () => {
    const { parameters: _, ...cls } = aClass();
    const { annotations: __, ...metadata } = aClaim().metadata;
    const { plan } = await planCreation({ cls, claim: { ...aClaim(), metadata } });
    assert.deepEqual(plan, (await planCreation()).plan);
  });

  it('needs nothing from the API server for a plain class', async () =>
    assert.deepEqual((await runPlan()).steps, []));

  it('rounds the bytes up', async () =>
    assert.equal(await bytesOf(claimOf({ resources: { requests: { storage: '1500m' } } })), 2n));

  it('has 0 bytes if the claim names no size', async () => {
    const { resources: _, ...spec } = aClaim().spec;
    assert.equal(await bytesOf({ claim: { ...aClaim(), spec } }), 0n);
    assert.equal(await bytesOf(claimOf({ resources: { requests: {} } })), 0n);
  });

  it('can’t have 1Zi bytes or a negative size; the refusal names the field', async () => {
    const asking = async (storage: string) =>
      (await planRefusal(claimOf({ resources: { requests: { storage } } }))).message;
    assert.match(await asking('1Zi'), /^spec\.resources\.requests\.storage: "1Zi": unknown unit/);
    assert.equal(await asking('-1'), 'spec.resources.requests.storage: -1 is negative');
  });
});

describe('the file system', () => {
  it('is the class’s, and the PV has both deletion annotations empty (B-01)', async () => {
    const given = withFsType('ext3');
    const { metadata, spec } = await completePv(given);
    assert.equal(metadata.name, 'test-testi');
    assert.equal(spec.csi?.fsType, 'ext3');
    assert.deepEqual(metadata.annotations, {
      'pv.kubernetes.io/provisioned-by': 'test-driver',
      'volume.kubernetes.io/provisioner-deletion-secret-name': '',
      'volume.kubernetes.io/provisioner-deletion-secret-namespace': '',
    });
    assert.deepEqual((await requestOf(given)).parameters, { fstype: 'ext3' });
  });

  it('is sent with the names that --extra-create-metadata adds (B-02)', async () => {
    const given = { ...withFsType('ext3'), options: { extraCreateMetadata: true } };
    assert.deepEqual((await requestOf(given)).parameters, {
      [`${N}pvc/name`]: 'claim',
      [`${N}pvc/namespace`]: 'space',
      [`${N}pv/name`]: 'test-testi',
      fstype: 'ext3',
    });
  });

  it('is not sent as a parameter under the reserved key (B-04)', async () => {
    const given = classOf({ parameters: { [`${N}fstype`]: 'ext3' } });
    assert.equal((await csiOf(given))?.fsType, 'ext3');
    assert.deepEqual((await requestOf(given)).parameters, {});
  });

  const noDefault: Given = { options: { defaultFstype: '' } };
  const cases: readonly (readonly [string, Given, string | undefined])[] = [
    ['is the default if the class names none (B-42)', {}, 'ext4'],
    ['is the class’s if there is a default too (B-43)', withFsType('xfs'), 'xfs'],
    ['is empty if neither class nor flag name one (B-44)', noDefault, undefined],
    ['is the class’s without a default (B-45)', { ...withFsType('xfs'), ...noDefault }, 'xfs'],
  ];
  for (const [title, given, fsType] of cases)
    it(title, async () => assert.equal((await csiOf(given))?.fsType, fsType));
});

describe('the access modes of a claim', () => {
  const mixed = { claim: claimFor('ReadOnlyMany', 'ReadWriteOnce') };

  it('are capabilities of the request, in their order, and the PV’s', async () => {
    const driver = withCapability('SINGLE_NODE_MULTI_WRITER');
    const { volumeCapabilities } = await requestOf({ ...mixed, driver });
    assert.deepEqual(
      volumeCapabilities.map(({ accessMode }) => accessMode?.mode),
      [Mode.MULTI_NODE_READER_ONLY, Mode.SINGLE_NODE_MULTI_WRITER],
    );
    assert.deepEqual((await completePv(mixed)).spec.accessModes, mixed.claim.spec.accessModes);
  });

  const options = { controllerPublishReadonly: true };
  const rox = { claim: claimFor('ReadOnlyMany') };
  const block = claimOf({ accessModes: ['ReadOnlyMany'], volumeMode: 'Block' });
  const readOnly: readonly (readonly [string, Given, true | undefined])[] = [
    ['ROX make no read-only PV without the flag (B-06)', rox, undefined],
    ['ROX make a read-only PV with it (B-07)', { ...rox, options }, true],
    ['ROX do so for a block device, too (R-16)', { ...block, options }, true],
    ['ROX and RWO do not, with the flag (R-17)', { ...mixed, options }, undefined],
    ['RWX do not', { claim: claimFor('ReadWriteMany'), options }, undefined],
  ];
  for (const [title, given, expected] of readOnly)
    it(title, async () => assert.equal((await csiOf(given))?.readOnly, expected));
});

describe('the volume mode of a claim', () => {
  it('Filesystem is also the PV’s, with a file system (B-15)', async () => {
    const { spec } = await completePv(claimOf({ volumeMode: 'Filesystem' }));
    assert.deepEqual([spec.volumeMode, spec.csi?.fsType], ['Filesystem', 'ext4']);
  });

  it('Block is also the PV’s, without a file system (B-16)', async () => {
    const given = claimOf({ volumeMode: 'Block' });
    assert.equal((await requestOf(given)).volumeCapabilities[0]?.accessType.case, 'block');
    const { spec } = await completePv(given);
    assert.deepEqual([spec.volumeMode, spec.csi?.fsType], ['Block', undefined]);
  });
});

describe('the mount options of a class', () => {
  it('are the flags of the capability and the PV’s (B-23)', async () => {
    const given = classOf({ mountOptions: ['foo=bar', 'baz=qux'] });
    const type = (await requestOf(given)).volumeCapabilities[0]?.accessType;
    assert.ok(type?.case === 'mount');
    assert.deepEqual(type.value.mountFlags, ['foo=bar', 'baz=qux']);
    assert.deepEqual((await completePv(given)).spec.mountOptions, ['foo=bar', 'baz=qux']);
  });

  it('are also in the PV of a block device', async () => {
    const given = { ...classOf({ mountOptions: ['foo'] }), ...claimOf({ volumeMode: 'Block' }) };
    assert.deepEqual((await completePv(given)).spec.mountOptions, ['foo']);
  });
});

describe('a claim for a populator', () => {
  const source = { apiGroup: 'my.example.io', kind: 'MyPopulator', name: 'p' };
  const odd = { dataSource: source, selector: {}, accessModes: ['Other'] };
  it('is left to the populator, before all other checks (B-27)', async () =>
    assert.deepEqual((await runPlan(claimOf(odd))).value, { kind: 'populator' }));
});
