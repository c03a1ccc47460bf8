import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { deletionSecret, judgeVolume, recordId } from '#src/volumes/deletion.ts';
import type { Volume } from '#src/kube/objects.ts';
import { aVolume, driver, DRIVER, options } from './builders.ts';

const kind = (volume: Volume) => judgeVolume(volume, driver).kind;
const by = (provisioner: string, migratedTo?: string) => ({
  annotations: { 'pv.kubernetes.io/provisioned-by': provisioner, ...(migratedTo ? { 'pv.kubernetes.io/migrated-to': migratedTo } : {}) },
});

describe('judgeVolume', () => {
  it('deletes a Released volume of ours with policy Delete', () => assert.equal(kind(aVolume()), 'delete'));

  it('deletes it also when its PV is being deleted', () => {
    assert.equal(kind(aVolume({ metadata: { deletionTimestamp: 'now' } })), 'delete');
  });

  it('deletes a Released volume that never had our finalizer', () =>
    assert.equal(kind(aVolume({ metadata: { finalizers: [] } })), 'delete'));

  it('leaves a PV that is going away without our finalizer', () => {
    assert.equal(kind(aVolume({ metadata: { finalizers: [], deletionTimestamp: 'now' } })), 'ignore');
  });

  for (const phase of ['Pending', 'Available', 'Bound', 'Failed']) {
    it(`leaves a ${phase} volume`, () => assert.equal(kind(aVolume({ phase })), 'ignore'));
  }

  it('protects a Bound volume that lacks our finalizer', () =>
    assert.equal(kind(aVolume({ phase: 'Bound', metadata: { finalizers: [] } })), 'add-finalizer'));

  it('does not protect a Bound volume that is going away', () => {
    assert.equal(kind(aVolume({ phase: 'Bound', metadata: { finalizers: [], deletionTimestamp: 'now' } })), 'ignore');
  });

  for (const persistentVolumeReclaimPolicy of ['Retain', 'Recycle'] as const) {
    it(`takes the finalizer off with policy ${persistentVolumeReclaimPolicy}`, () => {
      assert.equal(kind(aVolume({ spec: { persistentVolumeReclaimPolicy } })), 'remove-finalizer');
      assert.equal(kind(aVolume({ spec: { persistentVolumeReclaimPolicy }, metadata: { finalizers: ['x'] } })), 'ignore');
    });
  }

  it('leaves a volume of another provisioner', () => assert.equal(kind(aVolume({ metadata: by('other') })), 'ignore'));
  it('takes a volume that was migrated to us', () => assert.equal(kind(aVolume({ metadata: by('kubernetes.io/old', DRIVER) })), 'delete'));
  it('takes a static volume of our driver', () => assert.equal(kind(aVolume({ metadata: { annotations: {} } })), 'delete'));
  it('leaves a static volume of another driver', () => {
    assert.equal(kind(aVolume({ metadata: { annotations: {} }, spec: { csi: { driver: 'other', volumeHandle: 'h' } } })), 'ignore');
  });
});

describe('recordId', () => {
  it('is the claim’s UID where the PV has the name we give it', () => assert.equal(recordId(aVolume(), options), 'testid'));
  it('is the PV’s UID for a static volume', () =>
    assert.equal(recordId(aVolume({ metadata: { name: 'by-hand' } }), options), 'volume-uid'));
});

describe('deletionSecret', () => {
  const metadata = (name: string, namespace: string) => ({
    annotations: {
      'volume.kubernetes.io/provisioner-deletion-secret-name': name,
      'volume.kubernetes.io/provisioner-deletion-secret-namespace': namespace,
    },
  });
  it('is named by both annotations', () => assert.deepEqual(deletionSecret(metadata('n', 's')), { name: 'n', namespace: 's' }));
  it('is none where either is empty', () => assert.equal(deletionSecret(metadata('n', '')), undefined));
});
