import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { awsRegion, gceRegion } from '#src/volumes/migration/regions.ts';

describe('gceRegion', () => {
  it('is the first two parts of three', () =>
    assert.deepEqual(gceRegion(['us-east1-b']), { region: 'us-east1' }));
  it('is the one that all zones share', () => {
    assert.deepEqual(gceRegion(['europe-west1-b', 'europe-west1-c']), { region: 'europe-west1' });
  });
  it('needs zones', () => assert.deepEqual(gceRegion([]), { problem: 'no zones specified' }));

  for (const zone of ['us-east1', 'us-east1-b-c', 'useast', '']) {
    it(`refuses the zone "${zone}"`, () => {
      const problem = `zone in unexpected format, expected: {locale}-{region}-{zone}, got: ${zone}`;
      assert.deepEqual(gceRegion(['us-east1-a', zone]), { problem });
    });
  }

  it('refuses several regions and names them', () => {
    const problem = 'multiple or no regions gotten from zones, got: us-east1, us-west1';
    assert.deepEqual(gceRegion(['us-west1-a', 'us-east1-b', 'us-west1-b']), { problem });
  });
});

describe('awsRegion', () => {
  const regions: Readonly<Record<string, string>> = {
    'us-west-2a': 'us-west-2',
    'us-gov-east-1a': 'us-gov-east-1',
    'us-west-2-lax-1a': 'us-west-2',
    'us-east-1-wl1-bos-wlz-1': 'us-east-1',
  };
  for (const [zone, region] of Object.entries(regions)) {
    it(`of ${zone} is ${region}`, () => assert.deepEqual(awsRegion([zone]), { region }));
  }

  for (const zone of [
    'us-west-2',
    'us-west-2aa',
    'us-gov-east-1',
    'us-west',
    'a',
    '',
    'a-b-c-d-e-f',
    'a-b-c-d-e-f-g-h',
  ]) {
    it(`refuses the zone "${zone}"`, () => {
      assert.deepEqual(awsRegion(['us-west-2a', zone]), {
        problem: `Unexpected zone format: ${zone} is not a valid AWS zone`,
      });
    });
  }

  it('is the one that all zones share', () => {
    assert.deepEqual(awsRegion(['us-west-2a', 'us-west-2b', 'us-west-2-lax-1a']), {
      region: 'us-west-2',
    });
  });
  it('needs zones', () => assert.deepEqual(awsRegion([]), { problem: 'no zones specified' }));
  it('refuses several regions and names them', () => {
    const problem = 'multiple or no regions gotten from zones, got: us-east-1, us-west-2';
    assert.deepEqual(awsRegion(['us-west-2a', 'us-east-1a']), { problem });
  });
});
