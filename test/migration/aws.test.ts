import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { toInTreeVolume, translateHandle } from '#src/migration/plugins.ts';
import { aNewVolume, aStoredVolume, refusal } from './builders.ts';

describe('the handle of an AWS volume for its driver', () => {
  const handleOf = (volumeID: string) =>
    translateHandle(aStoredVolume({ awsElasticBlockStore: { volumeID } }))?.handle;
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
    it(`is "${handle}" for "${volumeID}"`, () => assert.equal(handleOf(volumeID), handle));

  const PREFIX = 'failed to translate Kubernetes ID to EBS Volume ID ';
  const foreign = ['aws://us-east-1a/snap-1', 'aws://us-east-1a/vol-1/a', 'aws://vol-1', 'aws://'];
  for (const volumeID of [...foreign, 'aws://z/vol-1%2Fa', 'aws://z/../vol-1', 'aws://z/x-vol-1'])
    it(`is refused as no AWS volume for "${volumeID}"`, () => {
      const text = `${PREFIX}Invalid format for AWS volume (${volumeID})`;
      assert.throws(() => handleOf(volumeID), refusal(text));
    });
  const noUrls = ['aws://us east/vol-1', 'aws://z:port/vol-1', 'aws://z/vol-%zz'];
  for (const volumeID of [...noUrls, 'aws://z/vol-1\n', 'aws://z/vol-\u0007'])
    it(`is refused as no URL for ${JSON.stringify(volumeID)}`, () => {
      const why = 'it is no URL like aws://us-east-1a/vol-1';
      const text = `${PREFIX}Invalid disk name (${volumeID}): ${why}`;
      assert.throws(() => handleOf(volumeID), refusal(text));
    });
});

describe('the partition of a new volume of the AWS driver', () => {
  const partitionOf = (partition: string) =>
    toInTreeVolume(aNewVolume('kubernetes.io/aws-ebs', { volumeAttributes: { partition } })).spec
      .awsElasticBlockStore?.partition;
  for (const [text, partition] of [
    ['+7', 7],
    ['-7', -7],
    ['2147483647', 2_147_483_647],
  ] as const)
    it(`is ${partition} for "${text}"`, () => assert.equal(partitionOf(text), partition));

  for (const partition of ['', 'x', '1.5', '1e1', '2147483648', '-2147483648', '9'.repeat(400)])
    it(`is refused as "${partition.slice(0, 12)}"`, () => {
      const why = 'it is no whole number of 32 bits';
      const text = `failed to convert partition ${partition} to integer: ${why}`;
      assert.throws(() => partitionOf(partition), refusal(text));
    });
});
