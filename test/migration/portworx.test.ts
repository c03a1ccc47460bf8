import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { toCsiVolume, toInTreeVolume } from '#src/migration/plugins.ts';
import { affinity, aNewVolume, aStoredVolume, GA_ZONE } from './builders.ts';

const SECRET_NAME = 'openstorage.io/auth-secret-name';
const SECRET_NAMESPACE = 'openstorage.io/auth-secret-namespace';

describe('a Portworx volume for its driver', () => {
  const csi = (annotations: Record<string, string>) =>
    toCsiVolume(
      aStoredVolume(
        { portworxVolume: { volumeID: 'id', fsType: 'ext4', readOnly: true } },
        { annotations },
      ),
    ).spec.csi;
  const plain = {
    driver: 'pxd.portworx.com',
    volumeHandle: 'id',
    fsType: 'ext4',
    volumeAttributes: {},
  };

  it('has the source’s fields except readOnly', () => assert.deepEqual(csi({}), plain));

  it('has the secret of both annotations for five purposes', () => {
    const ref = { name: 's', namespace: '' };
    assert.deepEqual(csi({ [SECRET_NAME]: 's', [SECRET_NAMESPACE]: '' }), {
      ...plain,
      controllerPublishSecretRef: ref,
      nodeStageSecretRef: ref,
      nodePublishSecretRef: ref,
      controllerExpandSecretRef: ref,
      nodeExpandSecretRef: ref,
    });
  });

  it('has no secret for a single annotation', () => {
    assert.deepEqual(csi({ [SECRET_NAME]: 's' }), plain);
    assert.deepEqual(csi({ [SECRET_NAMESPACE]: 'n' }), plain);
  });

  it('keeps its topology', () => {
    const nodeAffinity = affinity({ [GA_ZONE]: ['z'] });
    const volume = aStoredVolume({ portworxVolume: { volumeID: 'id' }, nodeAffinity });
    assert.deepEqual(toCsiVolume(volume).spec.nodeAffinity, nodeAffinity);
  });
});

describe('a new volume of the Portworx driver', () => {
  it('keeps handle, file system and readOnly', () => {
    const csi = {
      volumeHandle: 'id',
      fsType: 'xfs',
      readOnly: true,
      nodeStageSecretRef: { name: 's' },
      volumeAttributes: { a: 'b' },
    };
    const volume = toInTreeVolume(aNewVolume('kubernetes.io/portworx-volume', csi));
    assert.deepEqual(volume.spec.portworxVolume, { volumeID: 'id', fsType: 'xfs', readOnly: true });
  });
});
