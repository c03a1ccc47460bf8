import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { fromBinary } from '@bufbuild/protobuf';
import { CreateVolumeRequestSchema, VolumeCapability_AccessMode_Mode as Mode } from '#src/csi/generated/csi_pb.ts';
import type { Claim, Class } from '#src/kube/objects.ts';
import { planVolume } from '#src/volumes/plan.ts';
import type { DriverFacts, ProvisioningOptions } from '#src/volumes/provisioning-options.ts';
import { aClaim, aClass, driver, options } from './builders.ts';

interface Given {
  readonly claim?: Claim;
  readonly cls?: Class;
  readonly driver?: DriverFacts;
  readonly options?: Partial<ProvisioningOptions>;
}

const plan = (given: Given = {}) =>
  planVolume({
    claim: given.claim ?? aClaim(),
    cls: given.cls ?? aClass(),
    className: 'class',
    driver: given.driver ?? driver,
    options: { ...options, ...given.options },
  });

function created(given: Given = {}) {
  const result = plan(given);
  assert.ok(result.kind === 'create', JSON.stringify(result));
  return { ...result, message: fromBinary(CreateVolumeRequestSchema, result.request) };
}

function refusal(given: Given): string {
  const result = plan(given);
  assert.ok(result.kind === 'refuse', `planned ${result.kind}`);
  return result.message;
}

const withCapability = (...names: string[]): DriverFacts => ({
  ...driver,
  controllerCapabilities: new Set([...driver.controllerCapabilities, ...names]),
});
const modes = (given: Given) => created(given).message.volumeCapabilities.map(({ accessMode }) => accessMode?.mode);

describe('planVolume', () => {
  it('asks for the claim’s bytes under the volume’s name', () => {
    const { message, name } = created();
    assert.equal(name, 'test-testi');
    assert.equal(message.name, 'test-testi');
    assert.equal(message.capacityRange?.requiredBytes, 100n);
    assert.equal(message.capacityRange?.limitBytes, 0n);
  });

  it('rounds a fraction of a byte up', () => {
    assert.equal(
      created({ claim: aClaim({ spec: { resources: { requests: { storage: '1500m' } } } }) }).message.capacityRange?.requiredBytes,
      2n,
    );
  });

  it('asks for 0 bytes where the claim names no size', () => {
    assert.equal(created({ claim: aClaim({ spec: { resources: {} } }) }).message.capacityRange?.requiredBytes, 0n);
  });

  it('names the field of a size that does not parse', () => {
    assert.match(
      refusal({ claim: aClaim({ spec: { resources: { requests: { storage: '1Zi' } } } }) }),
      /^spec\.resources\.requests\.storage: /,
    );
  });

  it('keeps the whole UID with length -1', () => {
    assert.equal(created({ options: { volumeNameUuidLength: -1 }, claim: aClaim({ metadata: { uid: 'a-b-c' } }) }).name, 'test-a-b-c');
  });

  it('never puts a secret’s values into the request that is stored', () => {
    const parameters = { 'csi.storage.k8s.io/provisioner-secret-name': 's', 'csi.storage.k8s.io/provisioner-secret-namespace': 'n' };
    const { message, secret } = created({ cls: aClass({ parameters }) });
    assert.deepEqual(message.secrets, {});
    assert.deepEqual(secret, { name: 's', namespace: 'n' });
  });

  describe('capabilities', () => {
    it('are one per access mode, in the claim’s order', () => {
      const claim = aClaim({ spec: { accessModes: ['ReadOnlyMany', 'ReadWriteOnce'] } });
      assert.deepEqual(modes({ claim }), [Mode.MULTI_NODE_READER_ONLY, Mode.SINGLE_NODE_WRITER]);
    });

    it('take the finer single-node modes from a driver that has them', () => {
      const fine = withCapability('SINGLE_NODE_MULTI_WRITER');
      assert.deepEqual(modes({ driver: fine }), [Mode.SINGLE_NODE_MULTI_WRITER]);
      assert.deepEqual(modes({ driver: fine, claim: aClaim({ spec: { accessModes: ['ReadWriteOncePod'] } }) }), [
        Mode.SINGLE_NODE_SINGLE_WRITER,
      ]);
    });

    it('carry file system and mount options', () => {
      const [capability] = created({ cls: aClass({ mountOptions: ['ro', 'x=y'], parameters: { fstype: 'xfs' } }) }).message
        .volumeCapabilities;
      assert.ok(capability?.accessType.case === 'mount');
      assert.equal(capability.accessType.value.fsType, 'xfs');
      assert.deepEqual(capability.accessType.value.mountFlags, ['ro', 'x=y']);
    });

    it('are block for a block claim', () => {
      const [capability] = created({ claim: aClaim({ spec: { volumeMode: 'Block' } }) }).message.volumeCapabilities;
      assert.equal(capability?.accessType.case, 'block');
    });

    it('can’t be made of an unknown access mode', () => {
      assert.equal(refusal({ claim: aClaim({ spec: { accessModes: ['Other'] } }) }), 'unsupported AccessMode combination: [Other]');
    });
  });

  describe('parameters', () => {
    const parametersOf = (parameters: Record<string, string>) => created({ cls: aClass({ parameters }) }).message.parameters;

    it('pass when they only begin with csi (A-05)', () => {
      assert.deepEqual(parametersOf({ csiFoo: 'bar', bim: 'baz' }), { csiFoo: 'bar', bim: 'baz' });
    });

    it('lose the reserved keys (A-06)', () => {
      const reserved = {
        'csi.storage.k8s.io/controller-publish-secret-name': 'a',
        'csi.storage.k8s.io/controller-publish-secret-namespace': 'b',
      };
      assert.deepEqual(parametersOf({ ...reserved, bim: 'baz' }), { bim: 'baz' });
    });

    it('may have a reserved key as a value (A-07)', () => {
      assert.deepEqual(parametersOf({ bim: 'csi.storage.k8s.io/controller-publish-secret-name' }), {
        bim: 'csi.storage.k8s.io/controller-publish-secret-name',
      });
    });

    it('keep fstype and the deprecated secret keys (A-09)', () => {
      const old = { fstype: 'xfs', csiProvisionerSecretName: 'a', csiProvisionerSecretNamespace: 'b' };
      assert.deepEqual(parametersOf(old), old);
    });

    it('may not have an unknown reserved key (A-10)', () => {
      assert.equal(
        refusal({ cls: aClass({ parameters: { 'csi.storage.k8s.io/pvc/name': 'x' } }) }),
        'failed to strip CSI Parameters of prefixed keys: found unknown parameter key "csi.storage.k8s.io/pvc/name" with reserved namespace csi.storage.k8s.io/',
      );
    });

    it('are empty where the class has none (A-11)', () => {
      assert.deepEqual(parametersOf({}), {});
    });

    it('tell the names of claim and volume with --extra-create-metadata', () => {
      assert.deepEqual(created({ options: { extraCreateMetadata: true } }).message.parameters, {
        'csi.storage.k8s.io/pvc/name': 'claim',
        'csi.storage.k8s.io/pvc/namespace': 'space',
        'csi.storage.k8s.io/pv/name': 'test-testi',
      });
    });

    it('may name the file system only once', () => {
      assert.equal(
        refusal({ cls: aClass({ parameters: { fstype: 'a', 'csi.storage.k8s.io/fstype': 'b' } }) }),
        'fstype specified in parameters with both "fstype" and "csi.storage.k8s.io/fstype" keys',
      );
    });
  });

  describe('refusals', () => {
    it('name the plug-in capability that is missing', () => {
      assert.equal(
        refusal({ driver: { ...driver, pluginCapabilities: new Set() } }),
        'CSI driver does not support dynamic provisioning: plugin CONTROLLER_SERVICE capability is not reported',
      );
    });

    it('name the controller capability that is missing', () => {
      assert.equal(
        refusal({ driver: { ...driver, controllerCapabilities: new Set() } }),
        'CSI driver does not support dynamic provisioning: controller CREATE_DELETE_VOLUME capability is not reported',
      );
    });

    it('cover a selector, even an empty one', () => {
      assert.equal(refusal({ claim: aClaim({ spec: { selector: {} } }) }), 'claim Selector is not supported');
    });

    it('cover a snapshot source, so that nobody gets an empty volume in its place', () => {
      const claim = aClaim({ spec: { dataSource: { apiGroup: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot', name: 's' } } });
      assert.match(refusal({ claim }), /^data source VolumeSnapshot s: /);
    });
  });

  it('leaves an unknown kind of data source to its populator', () => {
    const claim = aClaim({ spec: { dataSourceRef: { apiGroup: 'example.com', kind: 'Backup', name: 'b' } } });
    assert.deepEqual(plan({ claim }), { kind: 'populator', sourceKind: 'Backup' });
  });
});
