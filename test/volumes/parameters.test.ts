import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { driverParameters, fsTypeOf, metadataParameters } from '#src/volumes/plan.ts';
import { aClass } from './builders.ts';
import { hasMessage } from './plans.ts';

const N = 'csi.storage.k8s.io/';
const sent = (parameters: Record<string, string>) => driverParameters(aClass({ parameters }));
const fsType = (parameters: Record<string, string>, standard = 'ext4') =>
  fsTypeOf(aClass({ parameters }), standard);

const PURPOSES = [
  'provisioner-',
  'controller-publish-',
  'node-stage-',
  'node-publish-',
  'controller-expand-',
  '',
  'node-expand-',
  'controller-modify-',
];

describe('the parameters that the driver gets', () => {
  it('include keys that merely begin with csi (A-05)', () => {
    assert.deepEqual(sent({ csiFoo: 'bar', bim: 'baz' }), { csiFoo: 'bar', bim: 'baz' });
  });

  it('do not include a reserved secret key (A-06)', () => {
    assert.deepEqual(sent({ [`${N}controller-publish-secret-name`]: 'a', bim: 'baz' }), {
      bim: 'baz',
    });
  });

  it('include a reserved key as a value (A-07)', () => {
    const parameters = { bim: `${N}controller-publish-secret-name` };
    assert.deepEqual(sent(parameters), parameters);
  });

  it('do not include any of the 17 reserved keys (A-08)', () => {
    const keys = PURPOSES.flatMap((purpose) => [
      `${N}${purpose}secret-name`,
      `${N}${purpose}secret-namespace`,
    ]);
    const reserved = [`${N}fstype`, ...keys];
    assert.equal(new Set(reserved).size, 17);
    assert.deepEqual(sent(Object.fromEntries(reserved.map((key) => [key, 'value']))), {});
  });

  it('include fstype and the deprecated secret keys (A-09)', () => {
    const purposes = ['Provisioner', 'ControllerPublish', 'NodeStage', 'NodePublish'];
    const old = purposes.flatMap((purpose) => [
      `csi${purpose}SecretName`,
      `csi${purpose}SecretNamespace`,
    ]);
    const parameters = Object.fromEntries(['fstype', ...old].map((key) => [key, 'value']));
    assert.equal(Object.keys(parameters).length, 9);
    assert.deepEqual(sent(parameters), parameters);
  });

  it('are refused for an unknown reserved key (A-10)', () => {
    for (const key of ['csiBarBarBar', 'pvc/name', ''])
      assert.throws(
        () => sent({ [N + key]: 'x', bim: 'baz' }),
        hasMessage(
          'failed to strip CSI Parameters of prefixed keys: found unknown parameter key ' +
            `"${N}${key}" with reserved namespace csi.storage.k8s.io/`,
        ),
      );
  });

  it('are empty if the class has none (A-11)', () => {
    assert.deepEqual(sent({}), {});
    const { parameters: _, ...bare } = aClass();
    assert.deepEqual(driverParameters(bare), {});
  });

  it('include a key with the reserved prefix in capitals', () => {
    assert.deepEqual(sent({ 'CSI.storage.k8s.io/x': 'y' }), { 'CSI.storage.k8s.io/x': 'y' });
  });

  it('can include the names of claim and volume', () => {
    assert.deepEqual(metadataParameters({ name: 'claim', namespace: 'space' }, 'volume'), {
      [`${N}pvc/name`]: 'claim',
      [`${N}pvc/namespace`]: 'space',
      [`${N}pv/name`]: 'volume',
    });
  });
});

describe('the file system of a class', () => {
  it('is the default if the class names none', () => {
    assert.equal(fsType({}), 'ext4');
    const { parameters: _, ...bare } = aClass();
    assert.equal(fsTypeOf(bare, 'ext4'), 'ext4');
  });

  it('is the default if the class names an empty one', () =>
    assert.equal(fsType({ fstype: '' }), 'ext4'));

  it('is empty if neither class nor flag name one', () => assert.equal(fsType({}, ''), ''));

  it('is read from fstype in any case and from the reserved key', () => {
    for (const key of ['fstype', 'fsType', 'FSTYPE', `${N}fstype`])
      assert.equal(fsType({ [key]: 'xfs' }), 'xfs', key);
  });

  it('is not read from the reserved key in capitals', () =>
    assert.equal(fsType({ [`${N}fsType`]: 'xfs' }), 'ext4'));

  it('may be named only once', () => {
    const isRefusal = hasMessage(
      'fstype specified in parameters with both "fstype" and "csi.storage.k8s.io/fstype" keys',
    );
    assert.throws(() => fsType({ fstype: 'a', [`${N}fstype`]: 'a' }), isRefusal);
    assert.throws(() => fsType({ fstype: 'a', FSType: 'a' }), isRefusal);
  });
});
