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

describe('a vSphere volume for its driver', () => {
  const stored = (nodeAffinity?: VolumeSpec['nodeAffinity'], labels: Labels = {}) =>
    toCsiVolume(
      aStoredVolume(
        { vsphereVolume: { volumePath: 'p' }, ...(nodeAffinity ? { nodeAffinity } : {}) },
        { labels },
      ),
    ).spec;

  it('has the source’s fields', () => {
    const source = {
      volumePath: '[ds] a/b.vmdk',
      fsType: 'ext4',
      storagePolicyName: 'gold',
      storagePolicyID: 'id',
    };
    assert.deepEqual(toCsiVolume(aStoredVolume({ vsphereVolume: source })).spec.csi, {
      driver: 'csi.vsphere.vmware.com',
      volumeHandle: '[ds] a/b.vmdk',
      fsType: 'ext4',
      volumeAttributes: { storagepolicyname: 'gold' },
    });
  });

  it('has no policy if the source has none', () => {
    for (const policy of [{}, { storagePolicyName: '' }]) {
      const { csi } = toCsiVolume(
        aStoredVolume({ vsphereVolume: { volumePath: 'p', ...policy } }),
      ).spec;
      assert.deepEqual(csi, {
        driver: 'csi.vsphere.vmware.com',
        volumeHandle: 'p',
        volumeAttributes: {},
      });
    }
  });

  for (const [zone, region] of [
    [GA_ZONE, GA_REGION],
    [BETA_ZONE, BETA_REGION],
  ] as const) {
    it(`has ${zone} and its region under the driver’s keys`, () => {
      assert.deepEqual(
        stored(affinity({ [zone]: ['z'], [region]: ['r'] })).nodeAffinity,
        affinity({ [ZONE]: ['z'], [REGION]: ['r'] }),
      );
    });

    it(`has ${zone} and its region from the labels, each as one value`, () => {
      assert.deepEqual(
        stored(undefined, { [zone]: 'a__b', [region]: 'r' }).nodeAffinity,
        affinity({ [ZONE]: ['a__b'], [REGION]: ['r'] }),
      );
    });
  }

  it('has no affinity from empty labels', () => {
    assert.equal(stored(undefined, { [GA_ZONE]: '', [GA_REGION]: '' }).nodeAffinity, undefined);
  });

  it('uses a label only for what the affinity lacks', () => {
    const labels = { [GA_ZONE]: 'other', [GA_REGION]: 'r' };
    assert.deepEqual(
      stored(affinity({ [GA_ZONE]: ['z'] }), labels).nodeAffinity,
      affinity({ [ZONE]: ['z'], [REGION]: ['r'] }),
    );
  });

  it('keeps a beta region if the zone has the current key', () => {
    const given = affinity({ [GA_ZONE]: ['z'], [BETA_REGION]: ['r'] });
    assert.deepEqual(stored(given).nodeAffinity, affinity({ [ZONE]: ['z'], [BETA_REGION]: ['r'] }));
  });
});

describe('a new volume of the vSphere driver', () => {
  const NAME = 'kubernetes.io/vsphere-volume';

  it('has the path that the driver names, and its file system', () => {
    const volumeAttributes = { initialvolumefilepath: '[ds] a.vmdk', storagepolicyname: 'gold' };
    const volume = toInTreeVolume(
      aNewVolume(NAME, { fsType: 'xfs', readOnly: true, volumeAttributes }),
    );
    assert.deepEqual(volume.spec.vsphereVolume, { volumePath: '[ds] a.vmdk', fsType: 'xfs' });
  });

  it('has an empty path if the driver names none', () => {
    assert.deepEqual(toInTreeVolume(aNewVolume(NAME)).spec.vsphereVolume, { volumePath: '' });
  });

  it('has zone and region in affinity, and the first of each in the labels', () => {
    const nodeAffinity = affinity({ [ZONE]: ['b', 'a'], [REGION]: ['s'] }, { [REGION]: ['r'] });
    const { metadata, spec } = toInTreeVolume(aNewVolume(NAME, {}, { spec: { nodeAffinity } }));
    assert.deepEqual(
      spec.nodeAffinity,
      affinity({ [GA_ZONE]: ['b', 'a'], [GA_REGION]: ['s'] }, { [GA_REGION]: ['r'] }),
    );
    assert.deepEqual(metadata.labels, { [GA_ZONE]: 'a', [GA_REGION]: 'r' });
  });

  it('overwrites no label, and uses beta keys for a volume that has them', () => {
    const labels = { [BETA_ZONE]: 'own' };
    const spec = { nodeAffinity: affinity({ [ZONE]: ['z'], [REGION]: ['r'] }) };
    const volume = toInTreeVolume(aNewVolume(NAME, {}, { spec, metadata: { labels } }));
    assert.deepEqual(
      volume.spec.nodeAffinity,
      affinity({ [BETA_ZONE]: ['z'], [BETA_REGION]: ['r'] }),
    );
    assert.deepEqual(volume.metadata.labels, { [BETA_ZONE]: 'own', [BETA_REGION]: 'r' });
  });

  it('has no labels without topology', () =>
    assert.equal(toInTreeVolume(aNewVolume(NAME)).metadata.labels, undefined));
});
