import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { driverParameters, fsTypeOf } from '#src/volumes/plan.ts';
import { SECRET_KEYS } from '#src/volumes/secret-ref.ts';
import { aClass } from './builders.ts';
import { hasMessage } from './plans.ts';

const N = 'csi.storage.k8s.io/';
const sent = (parameters: Record<string, string>) => driverParameters(aClass({ parameters }));
const fsType = (parameters: Record<string, string>) => fsTypeOf(aClass({ parameters }), 'ext4');
const valued = (keys: readonly string[]) => Object.fromEntries(keys.map((key) => [key, 'value']));
const { parameters: _, ...bare } = aClass();

describe('the parameters that the driver gets', () => {
  it('include keys that merely begin with csi (A-05)', () =>
    assert.deepEqual(sent({ csiFoo: 'bar', bim: 'baz' }), { csiFoo: 'bar', bim: 'baz' }));

  it('do not include a reserved secret key (A-06)', () => {
    const parameters = { [`${N}controller-publish-secret-name`]: 'a', bim: 'baz' };
    assert.deepEqual(sent(parameters), { bim: 'baz' });
  });

  it('include a reserved key as a value (A-07)', () => {
    const parameters = { bim: `${N}controller-publish-secret-name` };
    assert.deepEqual(sent(parameters), parameters);
  });

  it('do not include any of the 17 reserved keys (A-08)', () => {
    const reserved = [`${N}fstype`, ...[...SECRET_KEYS].filter((key) => key.startsWith(N))];
    assert.equal(reserved.length, 17);
    assert.deepEqual(sent(valued(reserved)), {});
  });

  it('include fstype and the deprecated secret keys (A-09)', () => {
    const parameters = valued(['fstype', ...[...SECRET_KEYS].filter((key) => !key.startsWith(N))]);
    assert.equal(Object.keys(parameters).length, 9);
    assert.deepEqual(sent(parameters), parameters);
  });

  it('are empty if the class has none (A-11)', () => assert.deepEqual(driverParameters(bare), {}));

  it('include a key with the reserved prefix in capitals', () =>
    assert.deepEqual(sent({ 'CSI.storage.k8s.io/x': 'y' }), { 'CSI.storage.k8s.io/x': 'y' }));
});

describe('the file system of a class', () => {
  it('is the default if the class names an empty one', () =>
    assert.equal(fsType({ fstype: '' }), 'ext4'));
  it('is read from fstype in any case and from the reserved key', () => {
    for (const key of ['fstype', 'fsType', 'FSTYPE', `${N}fstype`])
      assert.equal(fsType({ [key]: 'xfs' }), 'xfs', key);
  });
  it('is not read from the reserved key in capitals', () =>
    assert.equal(fsType({ [`${N}fsType`]: 'xfs' }), 'ext4'));
  it('may be named only once', () =>
    assert.throws(() => fsType({ fstype: 'a', FSType: 'a' }), hasMessage(/^fstype specified in/)));
});
