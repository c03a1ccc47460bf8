import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { claims, classes, leases, pathOf, selectName, volumes } from '#src/kube/resources.ts';

describe('pathOf', () => {
  it('follows group, namespace, name and subresource; cluster-scoped objects have no namespace', () => {
    const at = { namespace: 'ns', name: 'c' };
    const ofClaims = '/api/v1/namespaces/ns/persistentvolumeclaims';
    assert.equal(pathOf(claims), '/api/v1/persistentvolumeclaims');
    assert.equal(pathOf(claims, { namespace: 'ns' }), ofClaims);
    assert.equal(pathOf(claims, { ...at, subresource: 'status' }), `${ofClaims}/c/status`);
    assert.equal(pathOf(leases, at), '/apis/coordination.k8s.io/v1/namespaces/ns/leases/c');
    assert.equal(pathOf(classes, at), '/apis/storage.k8s.io/v1/storageclasses/c');
  });

  it('escapes names, so that they can not change the path', () => {
    assert.equal(
      pathOf(volumes, { name: '../secrets/x?y' }),
      '/api/v1/persistentvolumes/..%2Fsecrets%2Fx%3Fy',
    );
  });
});

describe('selectName', () => {
  it('escapes what has a meaning in a selector, as users may name what does not exist', () => {
    assert.equal(selectName('pvc-1.a'), 'metadata.name=pvc-1.a');
    assert.equal(selectName('a,b=c\\d'), String.raw`metadata.name=a\,b\=c\\d`);
  });
});
