import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { awsRegion, gceRegion } from '#src/migration/topology.ts';
import { refusal } from './builders.ts';

describe('gceRegion', () => {
  it('is the first two parts of three', () => assert.equal(gceRegion(['us-east1-b']), 'us-east1'));
  it('is the one that all zones share', () => {
    assert.equal(gceRegion(['europe-west1-b', 'europe-west1-c']), 'europe-west1');
  });
  it('needs zones', () => assert.throws(() => gceRegion([]), refusal('no zones specified')));

  for (const zone of ['us-east1', 'us-east1-b-c', 'useast', '']) {
    it(`refuses the zone "${zone}"`, () => {
      const problem = `zone in unexpected format, expected: {locale}-{region}-{zone}, got: ${zone}`;
      assert.throws(() => gceRegion(['us-east1-a', zone]), refusal(problem));
    });
  }

  it('refuses several regions and names them', () => {
    const problem = 'multiple or no regions gotten from zones, got: us-east1, us-west1';
    assert.throws(() => gceRegion(['us-west1-a', 'us-east1-b', 'us-west1-b']), refusal(problem));
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
    it(`of ${zone} is ${region}`, () => assert.equal(awsRegion([zone]), region));
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
      const problem = `Unexpected zone format: ${zone} is not a valid AWS zone`;
      assert.throws(() => awsRegion(['us-west-2a', zone]), refusal(problem));
    });
  }

  it('is the one that all zones share', () => {
    assert.equal(awsRegion(['us-west-2a', 'us-west-2b', 'us-west-2-lax-1a']), 'us-west-2');
  });
  it('needs zones', () => assert.throws(() => awsRegion([]), refusal('no zones specified')));
  it('refuses several regions and names them', () => {
    const problem = 'multiple or no regions gotten from zones, got: us-east-1, us-west-2';
    assert.throws(() => awsRegion(['us-west-2a', 'us-east-1a']), refusal(problem));
  });
});
