import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { secretRef } from '#src/volumes/secret-ref.ts';
import type { SecretContext } from '#src/volumes/secret-ref.ts';
import { RefusedError } from '#src/volumes/provisioning-options.ts';

const N = 'csi.storage.k8s.io/';
const context: SecretContext = {
  volumeName: 'pvname',
  claim: { name: 'pvcname', namespace: 'pvcnamespace', annotations: { akey: 'avalue' } },
};
const publish = (parameters: Record<string, string>) => secretRef('NodePublish', parameters, context);
const provisioner = (name: string, namespace: string) =>
  secretRef('Provisioner', { [`${N}provisioner-secret-name`]: name, [`${N}provisioner-secret-namespace`]: namespace }, context);

describe('secretRef', () => {
  it('finds none without parameters (A-17)', () => {
    assert.equal(publish({}), undefined);
  });

  const halves: Record<string, Record<string, string>> = {
    'empty values (A-18)': { csiNodePublishSecretName: '', csiNodePublishSecretNamespace: '' },
    'only the old name (A-19)': { csiNodePublishSecretName: 'a' },
    'only the new name (A-20)': { [`${N}node-publish-secret-name`]: 'a' },
    'only the old namespace (A-21)': { csiNodePublishSecretNamespace: 'a' },
    'only the new namespace (A-22)': { [`${N}node-publish-secret-namespace`]: 'a' },
    'both pairs (A-24)': {
      csiNodePublishSecretName: 'a',
      csiNodePublishSecretNamespace: 'a',
      [`${N}node-publish-secret-name`]: 'a',
      [`${N}node-publish-secret-namespace`]: 'a',
    },
    'the old pair and the new name (A-25)': {
      csiNodePublishSecretName: 'a',
      csiNodePublishSecretNamespace: 'a',
      [`${N}node-publish-secret-name`]: 'a',
    },
    'the old pair and the new namespace (A-26)': {
      csiNodePublishSecretName: 'a',
      csiNodePublishSecretNamespace: 'a',
      [`${N}node-publish-secret-namespace`]: 'a',
    },
    'a name with a blank (A-31)': { csiNodePublishSecretName: 'bad name', csiNodePublishSecretNamespace: 'ns' },
    'a namespace with a blank (A-32)': { csiNodePublishSecretName: 'name', csiNodePublishSecretNamespace: 'bad ns' },
  };
  for (const [title, parameters] of Object.entries(halves)) {
    it(`refuses ${title}`, () => assert.throws(() => publish(parameters), RefusedError));
  }

  it('takes the old pair (A-23)', () => {
    assert.deepEqual(publish({ csiNodePublishSecretName: 'name', csiNodePublishSecretNamespace: 'ns' }), { name: 'name', namespace: 'ns' });
  });

  it('takes an old name with a new namespace (A-27)', () => {
    assert.deepEqual(publish({ csiNodePublishSecretName: 'name', [`${N}node-publish-secret-namespace`]: 'ns' }), {
      name: 'name',
      namespace: 'ns',
    });
  });

  it('takes the new pair (A-28)', () => {
    assert.deepEqual(publish({ [`${N}node-publish-secret-name`]: 'name', [`${N}node-publish-secret-namespace`]: 'ns' }), {
      name: 'name',
      namespace: 'ns',
    });
  });

  it('needs no claim for a static pair (A-29)', () => {
    const parameters = { [`${N}provisioner-secret-name`]: 'name', [`${N}provisioner-secret-namespace`]: 'ns' };
    assert.deepEqual(secretRef('Provisioner', parameters, { volumeName: 'pv' }), { name: 'name', namespace: 'ns' });
  });

  it('fills in claim, namespace and annotation (A-34)', () => {
    assert.deepEqual(provisioner("static-${pvc.name}-${pvc.annotations['akey']}", 'static-${pvc.namespace}'), {
      name: 'static-pvcname-avalue',
      namespace: 'static-pvcnamespace',
    });
  });

  it('fills in the volume’s name on both sides (A-35)', () => {
    const ref = publish({
      [`${N}node-publish-secret-name`]: "static-${pv.name}-${pvc.namespace}-${pvc.name}-${pvc.annotations['akey']}",
      [`${N}node-publish-secret-namespace`]: 'static-${pv.name}-${pvc.namespace}',
    });
    assert.deepEqual(ref, { name: 'static-pvname-pvcnamespace-pvcname-avalue', namespace: 'static-pvname-pvcnamespace' });
  });

  it('knows no claim name in a namespace', () => {
    assert.throws(() => provisioner('name', '${pvc.name}'), {
      message: 'error resolving value "${pvc.name}": invalid tokens: ["pvc.name"]',
    });
  });

  it('names all unknown variables, sorted, once', () => {
    assert.throws(() => provisioner('${b}-$a-${b}', 'ns'), { message: 'error resolving value "${b}-$a-${b}": invalid tokens: ["a" "b"]' });
  });

  it('falls back to the default pair', () => {
    assert.deepEqual(publish({ [`${N}secret-name`]: 'name', [`${N}secret-namespace`]: 'ns' }), { name: 'name', namespace: 'ns' });
  });

  it('drops ${} and an open ${ as Go does, and keeps a lone $', () => {
    assert.deepEqual(provisioner('a${}b', 'ns'), { name: 'ab', namespace: 'ns' });
    assert.deepEqual(provisioner('a${b', 'ns'), { name: 'a', namespace: 'ns' });
    assert.throws(() => provisioner('a$', 'ns'), { message: '"a$" is not a valid secret name' });
  });
});
