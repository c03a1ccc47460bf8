import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { VolumeSpec } from '#src/kube/objects.ts';
import { toCsiVolume, toInTreeVolume } from '#src/migration/plugins.ts';
import {
  affinity,
  aNewVolume,
  aStoredVolume,
  BETA_REGION,
  BETA_ZONE,
  GA_REGION,
  GA_ZONE,
} from './builders.ts';

const ZONE = 'topology.csi.vmware.com/zone';
const REGION = 'topology.csi.vmware.com/region';
type Labels = Readonly<Record<string, string>>;
type Affinity = VolumeSpec['nodeAffinity'];

describe('a vSphere volume for its driver', () => {
  const csi = (source: NonNullable<VolumeSpec['vsphereVolume']>) =>
    toCsiVolume(aStoredVolume({ vsphereVolume: source })).spec.csi;
  const volumePath = '[ds] a/b.vmdk';
  const plain = { driver: 'csi.vsphere.vmware.com', volumeHandle: volumePath };

  it('has the source’s fields', () =>
    assert.deepEqual(
      csi({ volumePath, fsType: 'ext4', storagePolicyName: 'gold', storagePolicyID: 'id' }),
      { ...plain, fsType: 'ext4', volumeAttributes: { storagepolicyname: 'gold' } },
    ));

  it('has no policy if the source has an empty one', () =>
    assert.deepEqual(csi({ volumePath, storagePolicyName: '' }), {
      ...plain,
      volumeAttributes: {},
    }));

  const translated = affinity({ [ZONE]: ['z'], [REGION]: ['r'] });
  const cases: Readonly<Record<string, readonly [Affinity, Labels, expected: Affinity]>> = {
    'has zone and region under the driver’s keys': [
      affinity({ [GA_ZONE]: ['z'], [GA_REGION]: ['r'] }),
      {},
      translated,
    ],
    'has beta zone and region under the driver’s keys': [
      affinity({ [BETA_ZONE]: ['z'], [BETA_REGION]: ['r'] }),
      {},
      translated,
    ],
    'has zone and region from the labels, each as one value': [
      undefined,
      { [BETA_ZONE]: 'a__b', [BETA_REGION]: 'r' },
      affinity({ [ZONE]: ['a__b'], [REGION]: ['r'] }),
    ],
    'has no affinity from empty labels': [undefined, { [GA_ZONE]: '', [GA_REGION]: '' }, undefined],
    'uses a label only for what the affinity lacks': [
      affinity({ [GA_ZONE]: ['z'] }),
      { [GA_ZONE]: 'other', [GA_REGION]: 'r' },
      translated,
    ],
    'keeps a beta region if the zone has the current key': [
      affinity({ [GA_ZONE]: ['z'], [BETA_REGION]: ['r'] }),
      {},
      affinity({ [ZONE]: ['z'], [BETA_REGION]: ['r'] }),
    ],
  };
  for (const [title, [nodeAffinity, labels, expected]] of Object.entries(cases))
    it(title, () => {
      const spec = { vsphereVolume: { volumePath }, ...(nodeAffinity ? { nodeAffinity } : {}) };
      const volume = toCsiVolume(aStoredVolume(spec, { labels }));
      assert.deepEqual(volume.spec.nodeAffinity, expected);
    });
});

describe('a new volume of the vSphere driver', () => {
  const made = (nodeAffinity: Affinity, labels?: Labels) =>
    toInTreeVolume(
      aNewVolume(
        'kubernetes.io/vsphere-volume',
        { fsType: 'xfs', readOnly: true, volumeAttributes: { initialvolumefilepath: 'path' } },
        {
          spec: nodeAffinity ? { nodeAffinity } : {},
          metadata: labels ? { labels } : {},
        },
      ),
    );

  it('has the path that the driver names, its file system, and no labels', () => {
    const { metadata, spec } = made(undefined);
    assert.deepEqual(spec.vsphereVolume, { volumePath: 'path', fsType: 'xfs' });
    assert.equal(metadata.labels, undefined);
  });

  it('has an empty path if the driver names none', () => {
    const { spec } = toInTreeVolume(aNewVolume('kubernetes.io/vsphere-volume'));
    assert.deepEqual(spec.vsphereVolume, { volumePath: '' });
  });

  it('has zone and region in affinity, and the first of each in the labels', () => {
    const given = affinity({ [ZONE]: ['b', 'a'], [REGION]: ['s'] }, { [REGION]: ['r'] });
    const { metadata, spec } = made(given);
    const expected = affinity(
      { [GA_ZONE]: ['b', 'a'], [GA_REGION]: ['s'] },
      { [GA_REGION]: ['r'] },
    );
    assert.deepEqual(spec.nodeAffinity, expected);
    assert.deepEqual(metadata.labels, { [GA_ZONE]: 'a', [GA_REGION]: 'r' });
  });

  it('overwrites no label, and uses beta keys for a volume that has them', () => {
    const given = affinity({ [ZONE]: ['z'], [REGION]: ['r'] });
    const { metadata, spec } = made(given, { [BETA_ZONE]: 'own' });
    assert.deepEqual(spec.nodeAffinity, affinity({ [BETA_ZONE]: ['z'], [BETA_REGION]: ['r'] }));
    assert.deepEqual(metadata.labels, { [BETA_ZONE]: 'own', [BETA_REGION]: 'r' });
  });
});
