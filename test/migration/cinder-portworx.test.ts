import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { toCsiVolume, toInTreeVolume } from '#src/migration/plugins.ts';
import { affinity, aNewVolume, aStoredVolume, GA_ZONE } from './builders.ts';

const KEY = 'topology.cinder.csi.openstack.org/zone';
const SECRET_NAME = 'openstorage.io/auth-secret-name';
const SECRET_NAMESPACE = 'openstorage.io/auth-secret-namespace';
const made = { volumeHandle: 'id', fsType: 'xfs', readOnly: true };
const kept = { volumeID: 'id', fsType: 'xfs', readOnly: true };

describe('a Cinder volume', () => {
  it('has the source’s fields for its driver, but not its secret', () => {
    const secretRef = { name: 's', namespace: 'n' };
    const source = { volumeID: 'id', fsType: 'ext4', readOnly: true, secretRef };
    assert.deepEqual(toCsiVolume(aStoredVolume({ cinder: source })).spec.csi, {
      driver: 'cinder.csi.openstack.org',
      volumeHandle: 'id',
      fsType: 'ext4',
      readOnly: true,
      volumeAttributes: {},
    });
  });

  it('has its zones under the driver’s key', () => {
    const nodeAffinity = affinity({ [GA_ZONE]: ['nova'] });
    const volume = aStoredVolume({ cinder: { volumeID: 'id' }, nodeAffinity });
    assert.deepEqual(toCsiVolume(volume).spec.nodeAffinity, affinity({ [KEY]: ['nova'] }));
  });

  it('that is new keeps handle, file system and readOnly', () =>
    assert.deepEqual(toInTreeVolume(aNewVolume('kubernetes.io/cinder', made)).spec.cinder, kept));

  it('that is new has its zone in affinity and label, and no region', () => {
    const nodeAffinity = affinity({ [KEY]: ['nova'] }, { rack: ['r'] });
    const volume = aNewVolume('kubernetes.io/cinder', {}, { spec: { nodeAffinity } });
    const { metadata, spec } = toInTreeVolume(volume);
    assert.deepEqual(spec.nodeAffinity, affinity({ [GA_ZONE]: ['nova'] }, { rack: ['r'] }));
    assert.deepEqual(metadata.labels, { [GA_ZONE]: 'nova' });
  });
});

describe('a Portworx volume', () => {
  const nodeAffinity = affinity({ [GA_ZONE]: ['z'] });
  const portworxVolume = { volumeID: 'id', fsType: 'ext4', readOnly: true };
  const translated = (annotations: Record<string, string>) =>
    toCsiVolume(aStoredVolume({ portworxVolume, nodeAffinity }, { annotations })).spec;
  const plain = {
    driver: 'pxd.portworx.com',
    volumeHandle: 'id',
    fsType: 'ext4',
    volumeAttributes: {},
  };

  it('has the source’s fields for its driver, except readOnly, and its topology', () => {
    const { csi, nodeAffinity: found } = translated({});
    assert.deepEqual([csi, found], [plain, nodeAffinity]);
  });

  it('has the secret of both annotations for five purposes', () => {
    const ref = { name: 's', namespace: '' };
    assert.deepEqual(translated({ [SECRET_NAME]: 's', [SECRET_NAMESPACE]: '' }).csi, {
      ...plain,
      controllerPublishSecretRef: ref,
      nodeStageSecretRef: ref,
      nodePublishSecretRef: ref,
      controllerExpandSecretRef: ref,
      nodeExpandSecretRef: ref,
    });
  });

  it('has no secret for a single annotation', () => {
    assert.deepEqual(translated({ [SECRET_NAME]: 's' }).csi, plain);
    assert.deepEqual(translated({ [SECRET_NAMESPACE]: 'n' }).csi, plain);
  });

  it('that is new keeps handle, file system and readOnly', () =>
    assert.deepEqual(
      toInTreeVolume(aNewVolume('kubernetes.io/portworx-volume', made)).spec.portworxVolume,
      kept,
    ));
});
