import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { VolumeSpec } from '#src/kube/objects.ts';
import {
  awsRegion,
  gceRegion,
  labelPairOf,
  toDriverTopology,
  toLabelTopology,
} from '#src/migration/topology.ts';
import { RefusedError } from '#src/rules/rule.ts';
import {
  affinity,
  aStoredVolume,
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

describe('labelPairOf', () => {
  const both = { [GA_ZONE]: 'z', [BETA_ZONE]: 'z' };
  const beta = affinity({ [BETA_ZONE]: ['z'] });
  const mixed = affinity({ [BETA_ZONE]: ['z'] }, { [GA_ZONE]: [] });
  const cases: Readonly<Record<string, readonly [Affinity, Labels, zone: string]>> = {
    'GA by the affinity, before beta': [mixed, { [BETA_ZONE]: 'z' }, GA_ZONE],
    'beta by the affinity, before labels': [beta, both, BETA_ZONE],
    'GA by the labels, before beta': [affinity({ rack: ['r'] }), both, GA_ZONE],
    'GA by an empty label': [undefined, { [GA_ZONE]: '', [BETA_ZONE]: 'z' }, GA_ZONE],
    'beta by the labels': [undefined, { [BETA_ZONE]: '' }, BETA_ZONE],
    'GA without a zone': [affinity({ [BETA_REGION]: ['r'] }), { [BETA_REGION]: 'r' }, GA_ZONE],
  };
  for (const [title, [nodeAffinity, labels, zone]] of Object.entries(cases))
    it(`is ${title}`, () =>
      assert.equal(labelPairOf(withTopology(nodeAffinity, labels)).zone, zone));
});

describe('toDriverTopology', () => {
  it('renames a zone whatever its operator, and keeps what it does not know', () => {
    const rename = (key: string) => ({
      required: {
        nodeSelectorTerms: [
          {
            matchExpressions: [
              { key, operator: 'NotIn' as const, values: ['a'] },
              { key, operator: 'Exists' as const },
            ],
            matchFields: [{ key: GA_ZONE, operator: 'In' as const, values: ['field'] }],
          },
          {},
        ],
        to: 'us',
      },
      not: 'known',
    });
    const { spec } = toDriverTopology(withTopology(rename(GA_ZONE)), KEY);
    assert.deepEqual(spec.nodeAffinity, rename(KEY));
  });

  for (const zone of [GA_ZONE, BETA_ZONE]) {
    it(`renames ${zone} in the affinity and keeps the labels`, () => {
      const volume = withTopology(affinity({ [zone]: ['a'], rack: ['r'] }), { [zone]: 'other' });
      assert.deepEqual(
        toDriverTopology(volume, KEY),
        withTopology(affinity({ [KEY]: ['a'], rack: ['r'] }), { [zone]: 'other' }),
      );
    });
  }

  const cases: Readonly<Record<string, readonly [Affinity, Labels, expected: Affinity]>> = {
    'uses the zones of the label if the affinity has none, sorted and each once': [
      affinity({ rack: ['r'] }),
      { [GA_ZONE]: ' b__a__b__' },
      affinity({ rack: ['r'], [KEY]: ['a', 'b'] }),
    ],
    'creates an affinity for the label': [
      undefined,
      { [BETA_ZONE]: 'a' },
      affinity({ [KEY]: ['a'] }),
    ],
    'uses the label also if the affinity has zones without a value': [
      affinity({ [GA_ZONE]: [] }),
      { [GA_ZONE]: 'a' },
      affinity({ [GA_ZONE]: [], [KEY]: ['a'] }),
    ],
    'keeps zones that have the driver’s key already': [
      affinity({ [GA_ZONE]: ['a'], [KEY]: ['b'] }),
      {},
      {
        required: {
          nodeSelectorTerms: [
            {
              matchExpressions: [
                { key: KEY, operator: 'In', values: ['a'] },
                { key: KEY, operator: 'In', values: ['b'] },
              ],
            },
          ],
        },
      },
    ],
    'adds nothing for a label without a zone': [undefined, { [GA_ZONE]: ' __ ' }, undefined],
    'renames beta regions next to beta zones of the affinity': [
      affinity({ [BETA_ZONE]: ['a'], [BETA_REGION]: ['r'] }),
      {},
      affinity({ [KEY]: ['a'], [GA_REGION]: ['r'] }),
    ],
    'renames beta regions next to the label of a beta zone': [
      affinity({ [BETA_REGION]: ['r'] }),
      { [BETA_ZONE]: 'a' },
      affinity({ [GA_REGION]: ['r'], [KEY]: ['a'] }),
    ],
    'keeps beta regions without a value': [
      affinity({ [BETA_ZONE]: ['a'], [BETA_REGION]: [] }),
      {},
      affinity({ [KEY]: ['a'], [BETA_REGION]: [] }),
    ],
    'keeps beta regions next to current zones': [
      affinity({ [GA_ZONE]: ['a'], [BETA_REGION]: ['r'] }),
      {},
      affinity({ [KEY]: ['a'], [BETA_REGION]: ['r'] }),
    ],
  };
  for (const [title, [given, labels, expected]] of Object.entries(cases))
    it(title, () =>
      assert.deepEqual(
        toDriverTopology(withTopology(given, labels), KEY).spec.nodeAffinity,
        expected,
      ),
    );
});

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
