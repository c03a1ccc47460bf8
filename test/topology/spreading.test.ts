import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { firstTermFor, hashName, topologyRequirement } from '#src/topology/requirement.ts';
import { aClass } from '../volumes/builders.ts';
import { aCluster, allow, registered } from './fake-cluster.ts';

it('the hash of a name is FNV-1 with 32 bits', () => {
  assert.deepEqual(
    ['testset', 'testpvc', ''].map(hashName),
    [1_633_848_515, 1_684_622_678, 2_166_136_261],
  );
});

describe('the first term for a claim', () => {
  const count = 1000;
  it('is one further for the next member of a StatefulSet', () =>
    assert.equal(
      firstTermFor('data-set-4', count),
      (firstTermFor('data-set-3', count) + 1) % count,
    ));
  it('depends on the whole name where it ends with no number', () => {
    assert.equal(firstTermFor('testpvc', count), 1_684_622_678 % count);
    assert.equal(firstTermFor('set-x1', count), hashName('set-x1') % count);
    assert.equal(firstTermFor('set-', count), hashName('set-') % count);
    assert.equal(firstTermFor('set-4294967296', count), hashName('set-4294967296') % count);
  });
  it('is found where hash and number exceed 32 bits', () =>
    assert.equal(firstTermFor('testset-4294967295', count), (1_633_848_515 - 1) % count));
});

describe('the claims of a StatefulSet', () => {
  const places = [
    { zone: 'zone1', rack: 'rackA' },
    { zone: 'zone2', rack: 'rackB' },
    { zone: 'zone3', rack: 'rackC' },
    { zone: 'zone4', rack: 'rackD' },
  ];
  const [first = {}] = places;
  const topology = aCluster(registered(first, ...places));
  const allowed = {
    one: allow({ zone: ['zone1'], rack: ['rackA'] }),
    two: allow({ zone: ['zone2'], rack: ['rackB'] }, { zone: ['zone1'], rack: ['rackA'] }),
  };
  const cases = [
    ['testpvcA-testset-1', undefined, 'zone1 zone2 zone3 zone4 (H-06)'],
    ['testpvcB-testset-1', undefined, 'zone1 zone2 zone3 zone4 (H-07)'],
    ['testpvcC-testset-1', allowed.one, 'zone1 (H-08)'],
    ['testset-2', undefined, 'zone2 zone3 zone4 zone1 (H-09)'],
    ['testpvcB-testset-2', allowed.two, 'zone2 zone1 (H-10)'],
    ['testpvc-testset-3', undefined, 'zone3 zone4 zone1 zone2 (H-11)'],
    ['testpvc-testset-4', undefined, 'zone4 zone1 zone2 zone3 (H-12)'],
  ] as const;
  for (const [claimName, allowedTopologies, order] of cases) {
    const zones = order.match(/zone\d/g) ?? [];
    it(`${claimName} prefers ${order}`, () => {
      const requirement = topologyRequirement({
        claimName,
        cls: aClass(allowedTopologies === undefined ? {} : { allowedTopologies }),
        selectedNode: '',
        topology,
        strictTopology: false,
        immediateTopology: true,
      });
      assert.deepEqual(
        requirement?.preferred.map(({ segments }) => segments['zone']),
        zones,
      );
    });
  }
});
