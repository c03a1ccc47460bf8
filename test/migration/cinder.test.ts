import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { toCsiVolume, toInTreeVolume } from '#src/migration/plugins.ts';
import { affinity, aNewVolume, aStoredVolume, GA_ZONE } from './builders.ts';

const KEY = 'topology.cinder.csi.openstack.org/zone';

describe('a Cinder volume for its driver', () => {
  it('has the source’s fields, but not its secret', () => {
    const source = {
      volumeID: 'id',
      fsType: 'ext4',
      readOnly: true,
      secretRef: { name: 's', namespace: 'n' },
    };
    assert.deepEqual(toCsiVolume(aStoredVolume({ cinder: source })).spec.csi, {
      driver: 'cinder.csi.openstack.org',
      volumeHandle: 'id',
      fsType: 'ext4',
      readOnly: true,
      volumeAttributes: {},
    });
  });

  it('has its zones under the driver’s key', () => {
    const volume = aStoredVolume({
      cinder: { volumeID: 'id' },
      nodeAffinity: affinity({ [GA_ZONE]: ['nova'] }),
    });
    assert.deepEqual(toCsiVolume(volume).spec.nodeAffinity, affinity({ [KEY]: ['nova'] }));
  });
});

describe('a new volume of the Cinder driver', () => {
  it('keeps handle, file system and readOnly', () => {
    const volume = aNewVolume('kubernetes.io/cinder', {
      volumeHandle: 'id',
      fsType: 'xfs',
      readOnly: true,
    });
    assert.deepEqual(toInTreeVolume(volume).spec.cinder, {
      volumeID: 'id',
      fsType: 'xfs',
      readOnly: true,
    });
  });

  it('has its zone in affinity and label, and no region', () => {
    const volume = aNewVolume(
      'kubernetes.io/cinder',
      {},
      { spec: { nodeAffinity: affinity({ [KEY]: ['nova'] }, { rack: ['r'] }) } },
    );
    const { metadata, spec } = toInTreeVolume(volume);
    assert.deepEqual(spec.nodeAffinity, affinity({ [GA_ZONE]: ['nova'] }, { rack: ['r'] }));
    assert.deepEqual(metadata.labels, { [GA_ZONE]: 'nova' });
  });
});
