import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { NodeSelectorTerm, VolumeSpec } from '#src/kube/objects.ts';
import {
  addKey,
  labelPairOf,
  renameKey,
  toDriverTopology,
  toLabelTopology,
  valuesOf,
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
type Labels = Readonly<Record<string, string>>;
const withTopology = (nodeAffinity?: VolumeSpec['nodeAffinity'], labels?: Labels) =>
  aStoredVolume(nodeAffinity ? { nodeAffinity } : {}, labels ? { labels } : {});
/** A term with operators and fields that translation does not read. */
const ODD: NodeSelectorTerm = {
  matchExpressions: [
    { key: 'a', operator: 'NotIn', values: ['2'] },
    { key: 'a', operator: 'Exists' },
  ],
  matchFields: [{ key: 'a', operator: 'In', values: ['field'] }],
};

describe('renameKey', () => {
  it('changes the key in every expression of every term, whatever the operator', () => {
    const volume = withTopology({
      required: {
        nodeSelectorTerms: [
          ODD,
          ...(affinity({ b: ['1'], a: ['3'] }).required?.nodeSelectorTerms ?? []),
        ],
      },
    });
    assert.deepEqual(renameKey(volume, 'a', 'c').spec.nodeAffinity?.required?.nodeSelectorTerms, [
      {
        matchExpressions: [
          { key: 'c', operator: 'NotIn', values: ['2'] },
          { key: 'c', operator: 'Exists' },
        ],
        matchFields: [{ key: 'a', operator: 'In', values: ['field'] }],
      },
      {
        matchExpressions: [
          { key: 'b', operator: 'In', values: ['1'] },
          { key: 'c', operator: 'In', values: ['3'] },
        ],
      },
    ]);
  });

  it('keeps unknown fields', () => {
    const known = {
      required: {
        nodeSelectorTerms: [{ matchExpressions: [{ key: 'a', operator: 'In' as const }] }],
        to: 'us',
      },
      not: 'known',
    };
    const renamed = {
      required: {
        nodeSelectorTerms: [{ matchExpressions: [{ key: 'b', operator: 'In' }] }],
        to: 'us',
      },
      not: 'known',
    };
    assert.deepEqual(renameKey(withTopology(known), 'a', 'b').spec.nodeAffinity, renamed);
  });

  it('keeps expressions that have the new key already', () => {
    const twice = [
      { key: 'b', operator: 'In', values: ['1'] },
      { key: 'b', operator: 'In', values: ['2'] },
    ];
    const renamed = renameKey(withTopology(affinity({ a: ['1'], b: ['2'] })), 'a', 'b');
    assert.deepEqual(renamed.spec.nodeAffinity?.required?.nodeSelectorTerms, [
      { matchExpressions: twice },
    ]);
  });

  for (const nodeAffinity of [
    undefined,
    {},
    { required: { nodeSelectorTerms: [] } },
    { required: { nodeSelectorTerms: [{}] } },
  ]) {
    it(`does nothing to ${JSON.stringify(nodeAffinity)}`, () => {
      const volume = withTopology(nodeAffinity);
      assert.deepEqual(renameKey(volume, 'a', 'b'), volume);
    });
  }
});

describe('valuesOf', () => {
  it('is the union over all terms, sorted, each once', () => {
    const terms = [
      ODD,
      ...(affinity({ a: ['3', '1'] }, { a: ['1'], b: ['0'] }).required?.nodeSelectorTerms ?? []),
    ];
    assert.deepEqual(valuesOf(withTopology({ required: { nodeSelectorTerms: terms } }), 'a'), [
      '1',
      '2',
      '3',
    ]);
  });
  it('is empty without affinity', () => assert.deepEqual(valuesOf(withTopology(), 'a'), []));
});

describe('addKey', () => {
  const added = (values: readonly string[]) => ({ key: KEY, operator: 'In', values });

  it('adds the values trimmed, sorted and each once to every term', () => {
    const volume = addKey(withTopology({ required: { nodeSelectorTerms: [{}, ODD] } }), KEY, [
      ' b',
      'a ',
      '',
      'b',
      '  ',
    ]);
    assert.deepEqual(volume.spec.nodeAffinity?.required?.nodeSelectorTerms, [
      { matchExpressions: [added(['a', 'b'])] },
      { ...ODD, matchExpressions: [...(ODD.matchExpressions ?? []), added(['a', 'b'])] },
    ]);
  });

  for (const nodeAffinity of [undefined, {}, { required: { nodeSelectorTerms: [] } }]) {
    it(`creates a term if there is ${JSON.stringify(nodeAffinity)}`, () => {
      assert.deepEqual(
        addKey(withTopology(nodeAffinity), KEY, ['a']).spec.nodeAffinity,
        affinity({ [KEY]: ['a'] }),
      );
    });
  }

  it('does nothing if no value is left', () => {
    const volume = withTopology(affinity({ a: ['1'] }));
    for (const nothing of [[], ['', ' ']]) assert.deepEqual(addKey(volume, KEY, nothing), volume);
  });
});

describe('labelPairOf', () => {
  const GA = { zone: GA_ZONE, region: GA_REGION };
  const BETA = { zone: BETA_ZONE, region: BETA_REGION };
  const both = { [GA_ZONE]: 'z', [BETA_ZONE]: 'z' };
  const cases: readonly (readonly [
    string,
    ReturnType<typeof withTopology>,
    typeof GA | typeof BETA,
  ])[] = [
    [
      'GA by the affinity, before beta',
      withTopology(affinity({ [BETA_ZONE]: ['z'] }, { [GA_ZONE]: [] }), { [BETA_ZONE]: 'z' }),
      GA,
    ],
    [
      'beta by the affinity, before labels',
      withTopology(affinity({ [BETA_ZONE]: ['z'] }), both),
      BETA,
    ],
    ['GA by the labels, before beta', withTopology(affinity({ rack: ['r'] }), both), GA],
    ['GA by an empty label', withTopology(undefined, { [GA_ZONE]: '', [BETA_ZONE]: 'z' }), GA],
    ['beta by the labels', withTopology(undefined, { [BETA_ZONE]: '' }), BETA],
    ['GA without any key', withTopology(), GA],
    [
      'GA if the only key is a beta region',
      withTopology(affinity({ [BETA_REGION]: ['r'] }), { [BETA_REGION]: 'r' }),
      GA,
    ],
  ];
  for (const [title, volume, pair] of cases)
    it(`is ${title}`, () => assert.deepEqual(labelPairOf(volume), pair));
});

describe('toDriverTopology', () => {
  for (const zone of [GA_ZONE, BETA_ZONE]) {
    it(`renames ${zone} in the affinity and keeps the labels`, () => {
      const volume = withTopology(affinity({ [zone]: ['a'], rack: ['r'] }), { [zone]: 'other' });
      assert.deepEqual(
        toDriverTopology(volume, KEY),
        withTopology(affinity({ [KEY]: ['a'], rack: ['r'] }), { [zone]: 'other' }),
      );
    });

    it(`uses the zones of the label ${zone} if the affinity has none`, () => {
      const volume = withTopology(affinity({ rack: ['r'] }), { [zone]: 'b__a__b' });
      assert.deepEqual(
        toDriverTopology(volume, KEY),
        withTopology(affinity({ rack: ['r'], [KEY]: ['a', 'b'] }), { [zone]: 'b__a__b' }),
      );
    });
  }

  it('uses the label also if the affinity has zones without a value', () => {
    const volume = withTopology(affinity({ [GA_ZONE]: [] }), { [GA_ZONE]: 'a' });
    assert.deepEqual(
      toDriverTopology(volume, KEY).spec.nodeAffinity,
      affinity({ [GA_ZONE]: [], [KEY]: ['a'] }),
    );
  });

  it('changes nothing if neither affinity nor label names a zone', () => {
    for (const volume of [withTopology(), withTopology(undefined, { [GA_ZONE]: ' __ ' })]) {
      assert.deepEqual(toDriverTopology(volume, KEY), volume);
    }
  });

  it('renames beta regions to the current key', () => {
    const byAffinity = withTopology(affinity({ [BETA_ZONE]: ['a'], [BETA_REGION]: ['r'] }));
    assert.deepEqual(
      toDriverTopology(byAffinity, KEY).spec.nodeAffinity,
      affinity({ [KEY]: ['a'], [GA_REGION]: ['r'] }),
    );
    const byLabel = withTopology(affinity({ [BETA_REGION]: ['r'] }), { [BETA_ZONE]: 'a' });
    assert.deepEqual(
      toDriverTopology(byLabel, KEY).spec.nodeAffinity,
      affinity({ [GA_REGION]: ['r'], [KEY]: ['a'] }),
    );
  });

  it('keeps beta regions without a value, and next to current zones', () => {
    const empty = withTopology(affinity({ [BETA_ZONE]: ['a'], [BETA_REGION]: [] }));
    assert.deepEqual(
      toDriverTopology(empty, KEY).spec.nodeAffinity,
      affinity({ [KEY]: ['a'], [BETA_REGION]: [] }),
    );
    const mixed = withTopology(affinity({ [GA_ZONE]: ['a'], [BETA_REGION]: ['r'] }));
    assert.deepEqual(
      toDriverTopology(mixed, KEY).spec.nodeAffinity,
      affinity({ [KEY]: ['a'], [BETA_REGION]: ['r'] }),
    );
  });
});

describe('toLabelTopology', () => {
  const firstLetter = (zones: readonly string[]) => {
    const [letter, ...others] = new Set(zones.map((zone) => zone.charAt(0)));
    if (letter !== undefined && others.length === 0) return letter;
    throw new RefusedError(`bad ${zones.join()}`);
  };

  it('renames the driver’s zones and labels the volume with them, sorted', () => {
    const volume = toLabelTopology(
      withTopology(affinity({ [KEY]: ['b'] }, { [KEY]: ['a', 'b'] })),
      KEY,
    );
    assert.deepEqual(
      volume,
      withTopology(affinity({ [GA_ZONE]: ['b'] }, { [GA_ZONE]: ['a', 'b'] }), {
        [GA_ZONE]: 'a__b',
      }),
    );
  });

  it('adds the region to each term, and labels the volume with the only one', () => {
    const volume = toLabelTopology(
      withTopology(affinity({ [KEY]: ['r1'] }, { [KEY]: ['r2'] })),
      KEY,
      firstLetter,
    );
    const expected = affinity(
      { [GA_ZONE]: ['r1'], [GA_REGION]: ['r'] },
      { [GA_ZONE]: ['r2'], [GA_REGION]: ['r'] },
    );
    assert.deepEqual(volume, withTopology(expected, { [GA_ZONE]: 'r1__r2', [GA_REGION]: 'r' }));
  });

  it('derives the region of a term from all its zone expressions', () => {
    const volume = withTopology(affinity({ [KEY]: ['r1'], [GA_ZONE]: ['s1'] }));
    assert.throws(() => toLabelTopology(volume, KEY, firstLetter), /error: bad r1,s1$/);
  });

  it('adds no region label if terms have different regions', () => {
    const volume = toLabelTopology(
      withTopology(affinity({ [KEY]: ['r1'] }, { [KEY]: ['s1'] })),
      KEY,
      firstLetter,
    );
    assert.deepEqual(volume.metadata.labels, { [GA_ZONE]: 'r1__s1' });
  });

  it('keeps a term that has a region, even without zones', () => {
    const given = affinity({ [KEY]: ['r1'], [GA_REGION]: ['own'] }, { [GA_REGION]: ['own'] });
    const volume = toLabelTopology(withTopology(given), KEY, firstLetter);
    assert.deepEqual(
      volume.spec.nodeAffinity,
      affinity({ [GA_ZONE]: ['r1'], [GA_REGION]: ['own'] }, { [GA_REGION]: ['own'] }),
    );
    assert.deepEqual(volume.metadata.labels, { [GA_ZONE]: 'r1', [GA_REGION]: 'own' });
  });

  it('adds no region label if the terms’ own expressions have no value', () => {
    const volume = toLabelTopology(
      withTopology(affinity({ [KEY]: ['r1'], [GA_REGION]: [] })),
      KEY,
      firstLetter,
    );
    assert.deepEqual(volume.metadata.labels, { [GA_ZONE]: 'r1' });
  });

  it('overwrites no label', () => {
    const labels = { [GA_ZONE]: 'z', [GA_REGION]: '', other: 'o' };
    assert.deepEqual(
      toLabelTopology(withTopology(affinity({ [KEY]: ['r1'] }), labels), KEY, firstLetter).metadata
        .labels,
      labels,
    );
  });

  it('uses beta keys for a volume that has them', () => {
    const byLabel = toLabelTopology(
      withTopology(affinity({ [KEY]: ['r1'] }), { [BETA_ZONE]: 'r1' }),
      KEY,
      firstLetter,
    );
    assert.deepEqual(
      byLabel.spec.nodeAffinity,
      affinity({ [BETA_ZONE]: ['r1'], [BETA_REGION]: ['r'] }),
    );
    assert.deepEqual(byLabel.metadata.labels, { [BETA_ZONE]: 'r1', [BETA_REGION]: 'r' });
  });

  it('changes nothing without terms', () => {
    for (const nodeAffinity of [undefined, { required: { nodeSelectorTerms: [] } }]) {
      assert.deepEqual(
        toLabelTopology(withTopology(nodeAffinity), KEY, firstLetter),
        withTopology(nodeAffinity),
      );
    }
  });

  it('refuses a term whose zones have no region, and names the PV', () => {
    const text =
      'failed to translate topology. PV:pv. Error:Failed to handle region topology. error: bad ';
    const volume = withTopology(affinity({ [KEY]: ['r1'] }, { rack: ['1'] }));
    assert.throws(() => toLabelTopology(volume, KEY, firstLetter), refusal(text));
  });
});
