import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { TopologySelectorTerm } from '#src/kube/objects.ts';
import { flattenAllowed, topologyRequirement } from '#src/topology/requirement.ts';
import type { ClusterTopology } from '#src/topology/cluster-topology.ts';
import { aClass } from '../volumes/builders.ts';
import { allow } from './fake-cluster.ts';

const fail = (): never => assert.fail('a node was read');
const unread: ClusterTopology = {
  csiNode: fail,
  node: fail,
  csiNodes: fail,
  nodes: fail,
  computed: { terms: new Map() },
};

/** Requisite terms for a claim without a selected node. */
function requisite(allowedTopologies: readonly TopologySelectorTerm[]): unknown {
  return topologyRequirement({
    claimName: 'testpvc',
    cls: aClass({ allowedTopologies }),
    selectedNode: '',
    topology: unread,
    strictTopology: true,
    immediateTopology: false,
  })?.requisite.map(({ segments }) => segments);
}

const zones = (...names: string[]) => names.map((zone) => ({ zone }));
const places = (...names: (readonly [string, string])[]) =>
  names.map(([zone, rack]) => ({ rack, zone }));
const ALL = [
  ['zone1', 'rackA'],
  ['zone2', 'rackA'],
  ['zone1', 'rackB'],
  ['zone2', 'rackB'],
] as const;
const TWO_BY_TWO = { zone: ['zone1', 'zone2'], rack: ['rackA', 'rackB'] };

describe('the requisite terms of a class with allowed topologies', () => {
  const cases: readonly (readonly [string, readonly TopologySelectorTerm[], readonly unknown[]])[] =
    [
      ['one value (H-13)', allow({ zone: ['zone1'] }), zones('zone1')],
      ['two values (H-14)', allow({ zone: ['zone1', 'zone2'] }), zones('zone1', 'zone2')],
      ['two keys (H-15)', allow({ zone: ['zone1'], rack: ['rackA'] }), places(ALL[0])],
      [
        'one zone in two racks (H-16)',
        allow({ zone: ['zone1'], rack: ['rackA', 'rackB'] }),
        places(ALL[0], ALL[2]),
      ],
      ['two zones in two racks (H-17)', allow(TWO_BY_TWO), places(...ALL)],
      [
        'two terms with different keys (H-18)',
        allow({ zone: ['zone1'] }, { rack: ['rackA'] }),
        [{ rack: 'rackA' }, { zone: 'zone1' }],
      ],
      [
        'two terms with the same key (H-19)',
        allow({ zone: ['zone1'] }, { zone: ['zone2'] }),
        zones('zone1', 'zone2'),
      ],
      [
        'a value that two terms have (H-20)',
        allow({ zone: ['zone1', 'zone2'] }, { zone: ['zone2', 'zone3'] }),
        zones('zone1', 'zone2', 'zone3'),
      ],
      [
        'a term that is part of another (H-21)',
        allow({ zone: ['zone1'] }, TWO_BY_TWO),
        [...zones('zone1'), ...places(...ALL)],
      ],
      [
        'a combination that two terms have (H-22)',
        allow({ zone: ['zone1'], rack: ['rackB'] }, TWO_BY_TWO),
        places(...ALL),
      ],
    ];
  for (const [title, allowed, expected] of cases)
    it(`are right for ${title}, and no node is read`, () =>
      assert.deepEqual(requisite(allowed), expected));

  it('are absent if the terms are empty', () =>
    assert.equal(requisite([{}, { matchLabelExpressions: [] }]), undefined));

  it('begin anew after an expression without values', () =>
    assert.deepEqual(requisite(allow({ rack: ['rackA'], host: [], zone: ['zone1'] })), [
      { zone: 'zone1' },
    ]));

  it('have the last value of a key that a term names twice', () =>
    assert.deepEqual(
      requisite([
        {
          matchLabelExpressions: [
            { key: 'zone', values: ['zone1'] },
            { key: 'zone', values: ['zone2'] },
          ],
        },
      ]),
      zones('zone2'),
    ));
});

describe('allowed topologies with very many combinations', () => {
  const values = Array.from({ length: 101 }, (_, i) => `v${i}`);
  const message = /have more than 10000 combinations of values; create the class with fewer keys/;

  it('are refused, before they fill the memory', () => {
    const wide = Object.fromEntries(values.map((key) => [key, values]));
    assert.throws(() => flattenAllowed(allow(wide)), message);
  });

  it('are refused if many terms add up to them', () => {
    const term = allow({ a: values, b: values.slice(0, 99) });
    assert.equal(flattenAllowed(term).length, 9999);
    assert.throws(() => flattenAllowed([...term, ...term]), message);
  });
});
