import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { AwsElasticBlockStoreSource } from '#src/kube/objects.ts';
import { toCsiVolume, toInTreeVolume } from '#src/migration/plugins.ts';
import { affinity, aNewVolume, aStoredVolume, GA_REGION, GA_ZONE, refusal } from './builders.ts';

const NAME = 'kubernetes.io/aws-ebs';
const KEY = 'topology.ebs.csi.aws.com/zone';

describe('an AWS volume for its driver', () => {
  const csi = (source: AwsElasticBlockStoreSource) =>
    toCsiVolume(aStoredVolume({ awsElasticBlockStore: source })).spec.csi;

  it('has the source’s fields', () => {
    assert.deepEqual(csi({ volumeID: 'vol-1', fsType: 'ext4', readOnly: true, partition: 2 }), {
      driver: 'ebs.csi.aws.com',
      volumeHandle: 'vol-1',
      fsType: 'ext4',
      readOnly: true,
      volumeAttributes: { partition: '2' },
    });
  });

  it('has partition 0 if none is set', () => {
    assert.deepEqual(csi({ volumeID: 'vol-1' }), {
      driver: 'ebs.csi.aws.com',
      volumeHandle: 'vol-1',
      volumeAttributes: { partition: '0' },
    });
  });

  const handles: Readonly<Record<string, string>> = {
    'vol-1': 'vol-1',
    'anything at all': 'anything at all',
    'AWS://us-east-1a/x': 'AWS://us-east-1a/x',
    '': '',
    'aws://us-east-1a/vol-1': 'vol-1',
    'aws:///vol-1': 'vol-1',
    'aws://us-east-1a//vol-1/': 'vol-1',
    'aws://us-east-1a/vol-': 'vol-',
    'aws://us-east-1a/vol-1?query#fragment': 'vol-1',
    'aws://us-east-1a/vol%2D1': 'vol-1',
  };
  for (const [volumeID, handle] of Object.entries(handles)) {
    it(`has handle "${handle}" for "${volumeID}"`, () =>
      assert.equal(csi({ volumeID })?.volumeHandle, handle));
  }

  const PREFIX = 'failed to translate Kubernetes ID to EBS Volume ID ';
  for (const volumeID of [
    'aws://us-east-1a/snap-1',
    'aws://us-east-1a/vol-1/a',
    'aws://vol-1',
    'aws://',
    'aws://z/vol-1%2Fa',
    'aws://z/../vol-1',
    'aws://z/x-vol-1',
  ]) {
    it(`is refused as no AWS volume for "${volumeID}"`, () =>
      assert.throws(
        () => csi({ volumeID }),
        refusal(`${PREFIX}Invalid format for AWS volume (${volumeID})`),
      ));
  }
  for (const volumeID of [
    'aws://us east/vol-1',
    'aws://z:port/vol-1',
    'aws://z/vol-%zz',
    'aws://z/vol-1\n',
    'aws://z/vol-\u0007',
  ]) {
    it(`is refused as no URL for ${JSON.stringify(volumeID)}`, () => {
      const why = 'it is no URL like aws://us-east-1a/vol-1';
      const text = `${PREFIX}Invalid disk name (${volumeID}): ${why}`;
      assert.throws(() => csi({ volumeID }), refusal(text));
    });
  }

  it('has its zones under the driver’s key', () => {
    const volume = aStoredVolume(
      { awsElasticBlockStore: { volumeID: 'vol-1' } },
      { labels: { [GA_ZONE]: 'us-east-1a' } },
    );
    assert.deepEqual(toCsiVolume(volume).spec.nodeAffinity, affinity({ [KEY]: ['us-east-1a'] }));
  });
});

describe('a new volume of the AWS driver', () => {
  const source = (volumeAttributes: Record<string, string>) =>
    toInTreeVolume(aNewVolume(NAME, { volumeHandle: 'vol-1', volumeAttributes })).spec
      .awsElasticBlockStore;

  it('keeps handle, file system and readOnly', () => {
    const volume = toInTreeVolume(
      aNewVolume(NAME, { volumeHandle: 'vol-1', fsType: 'xfs', readOnly: true }),
    );
    assert.deepEqual(volume.spec.awsElasticBlockStore, {
      volumeID: 'vol-1',
      fsType: 'xfs',
      readOnly: true,
    });
  });

  for (const [text, partition] of Object.entries({
    '0': 0,
    '7': 7,
    '+7': 7,
    '-7': -7,
    '2147483647': 2_147_483_647,
  })) {
    it(`has partition ${partition} for "${text}"`, () =>
      assert.equal(source({ partition: text })?.partition, partition));
  }

  for (const partition of ['', 'x', '1.5', '1e1', '2147483648', '-2147483648', '9'.repeat(400)]) {
    it(`is refused for partition "${partition.slice(0, 12)}"`, () => {
      const why = 'it is no whole number of 32 bits';
      const text = `failed to convert partition ${partition} to integer: ${why}`;
      assert.throws(() => source({ partition }), refusal(text));
    });
  }

  it('has zone and region in affinity and labels', () => {
    const volume = aNewVolume(
      NAME,
      {},
      { spec: { nodeAffinity: affinity({ [KEY]: ['us-west-2-lax-1a'] }) } },
    );
    const { metadata, spec } = toInTreeVolume(volume);
    assert.deepEqual(
      spec.nodeAffinity,
      affinity({ [GA_ZONE]: ['us-west-2-lax-1a'], [GA_REGION]: ['us-west-2'] }),
    );
    assert.deepEqual(metadata.labels, { [GA_ZONE]: 'us-west-2-lax-1a', [GA_REGION]: 'us-west-2' });
  });

  it('is refused for zones that are not AWS’s', () => {
    const text =
      'failed to translate topology. PV:pv. Error:Failed to handle region topology. error: ' +
      'Unexpected zone format: z is not a valid AWS zone';
    const volume = aNewVolume(NAME, {}, { spec: { nodeAffinity: affinity({ [KEY]: ['z'] }) } });
    assert.throws(() => toInTreeVolume(volume), refusal(text));
  });
});
