import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { VolumeSpec } from '#src/kube/objects.ts';
import { toInTreeVolume } from '#src/migration/plugins.ts';
import { awsRegion, gceRegion, toLabelTopology } from '#src/migration/topology.ts';
import { RefusedError } from '#src/rules/rule.ts';
import {
  affinity,
  aNewVolume,
  aStoredVolume,
  AZURE_DISK_URI,
  BETA_REGION,
  BETA_ZONE,
  GA_REGION,
  GA_ZONE,
  refusal,
} from './builders.ts';

const KEY = 'driver/zone';
type Affinity = VolumeSpec['nodeAffinity'];
type Labels = Readonly<Record<string, string>>;
const withTopology = (nodeAffinity?: Affinity, labels?: Labels) =>
  aStoredVolume(nodeAffinity ? { nodeAffinity } : {}, labels ? { labels } : {});

describe('toLabelTopology', () => {
  const firstLetter = (zones: readonly string[]) => {
    const [letter, ...others] = new Set(zones.map((zone) => zone.charAt(0)));
    if (letter !== undefined && others.length === 0) return letter;
    throw new RefusedError(`bad ${zones.join()}`);
  };
  const translated = (nodeAffinity: Affinity, labels?: Labels, regionOf?: typeof firstLetter) =>
    toLabelTopology(withTopology(nodeAffinity, labels), KEY, regionOf);

  it('renames the driver’s zones and labels the volume with them, sorted', () =>
    assert.deepEqual(
      translated(affinity({ [KEY]: ['b'] }, { [KEY]: ['a', 'b'] })),
      withTopology(affinity({ [GA_ZONE]: ['b'] }, { [GA_ZONE]: ['a', 'b'] }), {
        [GA_ZONE]: 'a__b',
      }),
    ));

  it('adds the region to each term, and labels the volume with the only one', () => {
    const expected = affinity(
      { [GA_ZONE]: ['r1'], [GA_REGION]: ['r'] },
      { [GA_ZONE]: ['r2'], [GA_REGION]: ['r'] },
    );
    assert.deepEqual(
      translated(affinity({ [KEY]: ['r1'] }, { [KEY]: ['r2'] }), undefined, firstLetter),
      withTopology(expected, { [GA_ZONE]: 'r1__r2', [GA_REGION]: 'r' }),
    );
  });

  it('keeps a term that has a region, even without zones', () => {
    const given = affinity({ [KEY]: ['r1'], [GA_REGION]: ['own'] }, { [GA_REGION]: ['own'] });
    assert.deepEqual(
      translated(given, undefined, firstLetter).spec.nodeAffinity,
      affinity({ [GA_ZONE]: ['r1'], [GA_REGION]: ['own'] }, { [GA_REGION]: ['own'] }),
    );
  });

  const OWN = { [GA_ZONE]: 'z', [GA_REGION]: '', other: 'o' };
  const labels: Readonly<Record<string, readonly [Affinity, Labels | undefined, Labels]>> = {
    'adds no region label if terms have different regions': [
      affinity({ [KEY]: ['r1'] }, { [KEY]: ['s1'] }),
      undefined,
      { [GA_ZONE]: 'r1__s1' },
    ],
    'adds no region label if the terms’ own expressions have no value': [
      affinity({ [KEY]: ['r1'], [GA_REGION]: [] }),
      undefined,
      { [GA_ZONE]: 'r1' },
    ],
    'overwrites no label': [affinity({ [KEY]: ['r1'] }), OWN, OWN],
    'uses beta keys for a volume that has them': [
      affinity({ [KEY]: ['r1'] }),
      { [BETA_ZONE]: 'r1' },
      { [BETA_ZONE]: 'r1', [BETA_REGION]: 'r' },
    ],
  };
  for (const [title, [given, own, expected]] of Object.entries(labels))
    it(title, () =>
      assert.deepEqual(translated(given, own, firstLetter).metadata.labels, expected),
    );

  it('changes nothing without terms', () =>
    assert.deepEqual(translated(undefined, undefined, firstLetter), withTopology()));

  const begin =
    'failed to translate topology. PV:pv. Error:Failed to handle region topology. error: bad ';
  it('refuses a term whose zones have no region, and names the PV', () =>
    assert.throws(
      () => translated(affinity({ [KEY]: ['r1'] }, { rack: ['1'] }), undefined, firstLetter),
      refusal(begin),
    ));
  it('derives the region of a term from all its zone expressions', () =>
    assert.throws(
      () => translated(affinity({ [KEY]: ['r1'], [GA_ZONE]: ['s1'] }), undefined, firstLetter),
      refusal(`${begin}r1,s1`),
    ));
});

describe('the topology in the PV of', () => {
  const volumeHandle = 'projects/p/zones/us-east1-b/disks/disk';
  const [VS_ZONE, VS_REGION] = ['topology.csi.vmware.com/zone', 'topology.csi.vmware.com/region'];
  type Terms = Readonly<Record<string, readonly string[]>>;
  const renamed = { [VS_ZONE]: ['z'], [VS_REGION]: ['r'] };

  const created: readonly (readonly [string, string, Terms[], Terms[], Labels?, own?: Labels])[] = [
    [
      'GCE has its zones and region in affinity and labels',
      'gce-pd',
      [{ 'topology.gke.io/zone': ['us-east1-c', 'us-east1-b'] }],
      [{ [GA_ZONE]: ['us-east1-c', 'us-east1-b'], [GA_REGION]: ['us-east1'] }],
      { [GA_ZONE]: 'us-east1-b__us-east1-c', [GA_REGION]: 'us-east1' },
    ],
    [
      'AWS has its zone and region in affinity and labels',
      'aws-ebs',
      [{ 'topology.ebs.csi.aws.com/zone': ['us-west-2a'] }],
      [{ [GA_ZONE]: ['us-west-2a'], [GA_REGION]: ['us-west-2'] }],
      { [GA_ZONE]: 'us-west-2a', [GA_REGION]: 'us-west-2' },
    ],
    [
      'Cinder has its zone in affinity and label, and no region',
      'cinder',
      [{ 'topology.cinder.csi.openstack.org/zone': ['nova'] }, { rack: ['r'] }],
      [{ [GA_ZONE]: ['nova'] }, { rack: ['r'] }],
      { [GA_ZONE]: 'nova' },
    ],
    [
      'Azure Disk has its own keys and no label',
      'azure-disk',
      [{ 'topology.disk.csi.azure.com/zone': ['eastus-1'] }],
      [{ 'topology.disk.csi.azure.com/zone': ['eastus-1'] }],
    ],
    [
      'vSphere has zone and region in affinity, and the first of each in the labels',
      'vsphere-volume',
      [{ [VS_ZONE]: ['b', 'a'], [VS_REGION]: ['s'] }, { [VS_REGION]: ['r'] }],
      [{ [GA_ZONE]: ['b', 'a'], [GA_REGION]: ['s'] }, { [GA_REGION]: ['r'] }],
      { [GA_ZONE]: 'a', [GA_REGION]: 'r' },
    ],
    [
      'vSphere has the beta keys of its labels, which stay',
      'vsphere-volume',
      [renamed],
      [{ [BETA_ZONE]: ['z'], [BETA_REGION]: ['r'] }],
      { [BETA_ZONE]: 'own', [BETA_REGION]: 'r' },
      { [BETA_ZONE]: 'own' },
    ],
  ];
  for (const [title, name, given, expected, labels, own] of created)
    it(title, () => {
      const csi = { volumeHandle: name === 'azure-disk' ? AZURE_DISK_URI : volumeHandle };
      const change = {
        spec: { nodeAffinity: affinity(...given) },
        ...(own && { metadata: { labels: own } }),
      };
      const { metadata, spec } = toInTreeVolume(aNewVolume(`kubernetes.io/${name}`, csi, change));
      assert.deepEqual([spec.nodeAffinity, metadata.labels], [affinity(...expected), labels]);
    });
});

describe('the region of zones', () => {
  const regions: readonly (readonly [typeof gceRegion, readonly string[], string])[] = [
    [gceRegion, ['europe-west1-b', 'europe-west1-c'], 'europe-west1'],
    [awsRegion, ['us-west-2a', 'us-west-2b', 'us-west-2-lax-1a'], 'us-west-2'],
    [awsRegion, ['us-gov-east-1a'], 'us-gov-east-1'],
    [awsRegion, ['us-east-1-wl1-bos-wlz-1'], 'us-east-1'],
  ];
  for (const [regionOf, zones, region] of regions)
    it(`is ${region} for ${zones.join()} (${regionOf.name})`, () =>
      assert.equal(regionOf(zones), region));

  const format = 'zone in unexpected format, expected: {locale}-{region}-{zone}, got: ';
  for (const zone of ['us-east1', 'us-east1-b-c', ''])
    it(`is refused for GCE’s zone "${zone}"`, () =>
      assert.throws(() => gceRegion(['us-east1-a', zone]), refusal(`${format}${zone}`)));

  const badAws = ['us-west-2', 'us-west-2aa', 'us-gov-east-1', 'us-west', 'a', ''];
  for (const zone of [...badAws, 'a-b-c-d-e-f', 'a-b-c-d-e-f-g-h'])
    it(`is refused for AWS’s zone "${zone}"`, () => {
      const problem = `Unexpected zone format: ${zone} is not a valid AWS zone`;
      assert.throws(() => awsRegion(['us-west-2a', zone]), refusal(problem));
    });

  it('is refused without zones', () =>
    assert.throws(() => gceRegion([]), refusal('no zones specified')));
  it('is refused for several regions, which are named', () => {
    const problem = 'multiple or no regions gotten from zones, got: us-east1, us-west1';
    assert.throws(() => gceRegion(['us-west1-a', 'us-east1-b', 'us-west1-b']), refusal(problem));
  });
});
