import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { judgeClaim } from '#src/volumes/eligibility.ts';
import { aClaim, aClass, driver, DRIVER } from './builders.ts';

const classOf = (name: string) => (name === 'class' ? aClass() : undefined);

describe('judgeClaim', () => {
  it('takes a claim that names the driver and a class of it', () => {
    assert.equal(judgeClaim(aClaim(), driver, classOf).kind, 'provision');
  });

  it('ignores a claim that already names a volume', () => {
    assert.equal(judgeClaim(aClaim({ spec: { volumeName: 'pv' } }), driver, classOf).kind, 'ignore');
  });

  it('ignores a claim that the volume controller has not annotated yet', () => {
    assert.equal(judgeClaim(aClaim({ metadata: { annotations: {} } }), driver, classOf).kind, 'ignore');
  });

  it('ignores a claim of another provisioner', () => {
    const claim = aClaim({ metadata: { annotations: { 'volume.kubernetes.io/storage-provisioner': 'other' } } });
    assert.deepEqual(judgeClaim(claim, driver, classOf), { kind: 'ignore', reason: 'the claim is for provisioner other' });
  });

  it('reads the beta annotation where the GA one is absent', () => {
    const claim = aClaim({ metadata: { annotations: { 'volume.beta.kubernetes.io/storage-provisioner': DRIVER } } });
    assert.equal(judgeClaim(claim, driver, classOf).kind, 'provision');
  });

  it('lets the GA annotation win even when it is empty', () => {
    const annotations = { 'volume.kubernetes.io/storage-provisioner': '', 'volume.beta.kubernetes.io/storage-provisioner': DRIVER };
    assert.equal(judgeClaim(aClaim({ metadata: { annotations } }), driver, classOf).kind, 'ignore');
  });

  it('names the class that is missing', () => {
    assert.deepEqual(judgeClaim(aClaim({ spec: { storageClassName: 'none' } }), driver, classOf), { kind: 'no-class', className: 'none' });
  });

  it('prefers the class annotation to the class field', () => {
    const annotations = { 'volume.kubernetes.io/storage-provisioner': DRIVER, 'volume.beta.kubernetes.io/storage-class': 'class' };
    assert.equal(judgeClaim(aClaim({ metadata: { annotations }, spec: { storageClassName: 'none' } }), driver, classOf).kind, 'provision');
  });

  it('waits for the selected node of a WaitForFirstConsumer class', () => {
    const late = () => aClass({ volumeBindingMode: 'WaitForFirstConsumer' });
    assert.equal(judgeClaim(aClaim(), driver, late).kind, 'ignore');
    const annotations = { 'volume.kubernetes.io/storage-provisioner': DRIVER, 'volume.kubernetes.io/selected-node': 'n' };
    assert.equal(judgeClaim(aClaim({ metadata: { annotations } }), driver, late).kind, 'provision');
  });

  it('ignores a claim whose class belongs to another provisioner', () => {
    assert.equal(judgeClaim(aClaim(), driver, () => aClass({ provisioner: 'other' })).kind, 'ignore');
  });

  it('takes a claim that is being deleted, as upstream does', () => {
    assert.equal(judgeClaim(aClaim({ metadata: { deletionTimestamp: '2026-01-01T00:00:00Z' } }), driver, classOf).kind, 'provision');
  });
});
