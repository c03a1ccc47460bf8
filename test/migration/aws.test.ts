import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { AwsElasticBlockStoreSource, CsiSource, VolumeSpec } from '#src/kube/objects.ts';
import { toCsiVolume, toInTreeVolume } from '#src/migration/plugins.ts';
import { affinity, aNewVolume, aStoredVolume, GA_REGION, GA_ZONE, refusal } from './builders.ts';

const KEY = 'topology.ebs.csi.aws.com/zone';

describe('an AWS volume for its driver', () => {
  const csi = (source: AwsElasticBlockStoreSource) =>
    toCsiVolume(aStoredVolume({ awsElasticBlockStore: source })).spec.csi;
  const plain = { driver: 'ebs.csi.aws.com', volumeHandle: 'vol-1' };

  it('has the source’s fields', () =>
    assert.deepEqual(csi({ volumeID: 'vol-1', fsType: 'ext4', readOnly: true, partition: 2 }), {
      ...plain,
      fsType: 'ext4',
      readOnly: true,
      volumeAttributes: { partition: '2' },
    }));

  it('has partition 0 if none is set', () =>
    assert.deepEqual(csi({ volumeID: 'vol-1' }), {
      ...plain,
      volumeAttributes: { partition: '0' },
    }));

  const handles: Readonly<Record<string, string>> = {
    'anything at all': 'anything at all',
    'AWS://us-east-1a/x': 'AWS://us-east-1a/x',
    '': '',
    'aws://us-east-1a/vol-1': 'vol-1',
    'aws:///vol-1': 'vol-1',
    'aws://us-east-1a//vol-1/': 'vol-1',
    'aws://us-east-1a/vol-1?query#fragment': 'vol-1',
    'aws://us-east-1a/vol%2D1': 'vol-1',
  };
  for (const [volumeID, handle] of Object.entries(handles))
    it(`has handle "${handle}" for "${volumeID}"`, () =>
      assert.equal(csi({ volumeID })?.volumeHandle, handle));

  const PREFIX = 'failed to translate Kubernetes ID to EBS Volume ID ';
  for (const volumeID of [
    'aws://us-east-1a/snap-1',
    'aws://us-east-1a/vol-1/a',
    'aws://vol-1',
    'aws://',
    'aws://z/vol-1%2Fa',
    'aws://z/../vol-1',
    'aws://z/x-vol-1',
  ])
    it(`is refused as no AWS volume for "${volumeID}"`, () => {
      const text = `${PREFIX}Invalid format for AWS volume (${volumeID})`;
      assert.throws(() => csi({ volumeID }), refusal(text));
    });
  for (const volumeID of [
    'aws://us east/vol-1',
    'aws://z:port/vol-1',
    'aws://z/vol-%zz',
    'aws://z/vol-1\n',
    'aws://z/vol-\u0007',
  ])
    it(`is refused as no URL for ${JSON.stringify(volumeID)}`, () => {
      const why = 'it is no URL like aws://us-east-1a/vol-1';
      const text = `${PREFIX}Invalid disk name (${volumeID}): ${why}`;
      assert.throws(() => csi({ volumeID }), refusal(text));
    });

  it('has its zones under the driver’s key', () => {
    const nodeAffinity = affinity({ [GA_ZONE]: ['us-east-1a'] });
    const volume = aStoredVolume({ awsElasticBlockStore: { volumeID: 'vol-1' }, nodeAffinity });
    assert.deepEqual(toCsiVolume(volume).spec.nodeAffinity, affinity({ [KEY]: ['us-east-1a'] }));
  });
});

describe('a new volume of the AWS driver', () => {
  const made = (csi: Partial<CsiSource>, spec: VolumeSpec = {}) =>
    toInTreeVolume(aNewVolume('kubernetes.io/aws-ebs', csi, { spec }));
  const partitionOf = (partition: string) =>
    made({ volumeAttributes: { partition } }).spec.awsElasticBlockStore?.partition;

  it('keeps handle, file system and readOnly', () => {
    const { spec } = made({ volumeHandle: 'vol-1', fsType: 'xfs', readOnly: true });
    const expected = { volumeID: 'vol-1', fsType: 'xfs', readOnly: true };
    assert.deepEqual(spec.awsElasticBlockStore, expected);
  });

  for (const [text, partition] of [
    ['+7', 7],
    ['-7', -7],
    ['2147483647', 2_147_483_647],
  ] as const)
    it(`has partition ${partition} for "${text}"`, () =>
      assert.equal(partitionOf(text), partition));

  for (const partition of ['', 'x', '1.5', '1e1', '2147483648', '-2147483648', '9'.repeat(400)])
    it(`is refused for partition "${partition.slice(0, 12)}"`, () => {
      const why = 'it is no whole number of 32 bits';
      const text = `failed to convert partition ${partition} to integer: ${why}`;
      assert.throws(() => partitionOf(partition), refusal(text));
    });

  it('has zone and region in affinity and labels', () => {
    const { metadata, spec } = made({}, { nodeAffinity: affinity({ [KEY]: ['us-west-2a'] }) });
    const expected = affinity({ [GA_ZONE]: ['us-west-2a'], [GA_REGION]: ['us-west-2'] });
    assert.deepEqual(spec.nodeAffinity, expected);
    assert.deepEqual(metadata.labels, { [GA_ZONE]: 'us-west-2a', [GA_REGION]: 'us-west-2' });
  });
});
