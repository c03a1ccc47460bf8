import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Labels, TopologySelectorTerm } from '#src/kube/objects.ts';
import { RefusedError } from '#src/rules/rule.ts';
import { fingerprintNodes } from '#src/topology/fingerprint.ts';
import {
  MissingCsiNodeError,
  type RequirementInput,
  topologyRequirement,
} from '#src/topology/requirement.ts';
import { aClass } from '../volumes/builders.ts';
import { aCluster, allow, registered, type TestNode } from './fake-cluster.ts';

interface Given {
  readonly nodes: readonly TestNode[];
  /** Index of the selected node; absent: none. */
  readonly selected?: number;
  readonly allowed?: readonly TopologySelectorTerm[];
  readonly strict?: boolean;
  readonly immediate?: boolean;
}

function inputOf({ nodes, selected, allowed, strict, immediate }: Given): RequirementInput {
  return {
    claimName: 'testpvc',
    cls: aClass(allowed === undefined ? {} : { allowedTopologies: allowed }),
    selectedNode: selected === undefined ? '' : `node-${selected}`,
    topology: aCluster(nodes),
    strictTopology: strict ?? false,
    immediateTopology: immediate ?? true,
  };
}

/** The segments of requisite and preferred terms. */
function terms(given: Given): { requisite: Labels[]; preferred: Labels[] } | undefined {
  const found = topologyRequirement(inputOf(given));
  return (
    found && {
      requisite: found.requisite.map(({ segments }) => segments),
      preferred: found.preferred.map(({ segments }) => segments),
    }
  );
}

const requisite = (given: Given) => terms(given)?.requisite;
const preferred = (given: Given) => terms(given)?.preferred;
const bothWays = (given: Given): readonly Given[] =>
  [false, true].map((immediate) => ({ ...given, immediate }));

/** Each node has the labels of another driver too. */
function nodes(...zones: readonly (string | undefined)[]): readonly TestNode[] {
  return zones.map((zone) => ({
    labels: { other: 'x', ...(zone === undefined ? {} : { zone }) },
    keys: ['zone'],
  }));
}
const withKeys = (keys: TestNode['keys'], all: readonly TestNode[]): readonly TestNode[] =>
  all.map(({ labels }) => ({ labels, keys }));
const zones = (...names: string[]) => names.map((zone) => ({ zone }));

/** Refused with every combination of the flags; without a selected node only if all parts of the
 * cluster are asked for. */
function isRefused(given: Given, message: string | RegExp): void {
  for (const strict of [false, true])
    for (const immediate of [false, true]) {
      const change = { ...given, strict, immediate };
      if (given.selected === undefined && !immediate) assert.equal(terms(change), undefined);
      else assert.throws(() => terms(change), { message });
    }
}

describe('the requisite terms of a class without allowed topologies', () => {
  it('are the zone of all nodes (H-23)', () => {
    const given = { nodes: nodes('zone1', 'zone1', 'zone1') };
    assert.deepEqual(requisite(given), zones('zone1'));
    assert.deepEqual(requisite({ ...given, strict: true }), zones('zone1'));
    assert.equal(requisite({ ...given, immediate: false }), undefined);
  });

  const old = withKeys('not registered', nodes('zone1', 'zone2'));
  const unlabelled = withKeys('not registered', nodes(undefined, undefined));
  const labels = { zone: 'zone1', rack: 'rackA' };
  const ofOne = [{ labels, keys: ['zone'] }, ...registered(labels, labels)];
  const threeNodes = nodes('zone1', 'zone2', 'zone2');
  const found: readonly (readonly [string, Given, readonly string[]])[] = [
    [
      'the zone of all nodes, with a selected one (H-24)',
      { nodes: nodes('zone1', 'zone1', 'zone1'), selected: 0 },
      ['zone1'],
    ],
    ['each zone once (H-25)', { nodes: threeNodes }, ['zone1', 'zone2']],
    [
      'each zone once with a selected node (H-26)',
      { nodes: threeNodes, selected: 0 },
      ['zone1', 'zone2'],
    ],
    [
      'with strict topology that of the selected node (H-26)',
      { nodes: threeNodes, selected: 0, strict: true },
      ['zone1'],
    ],
    ['those of the keys of the selected node (H-27)', { nodes: ofOne, selected: 0 }, ['zone1']],
    [
      'those of the only node that is upgraded (H-32)',
      { nodes: [...unlabelled, ...nodes('zone3')] },
      ['zone3'],
    ],
    [
      'those of all nodes with the label, though one has registered it (H-33)',
      { nodes: [...old, ...nodes('zone3')] },
      ['zone1', 'zone2', 'zone3'],
    ],
  ];
  for (const [title, given, expected] of found)
    it(`are ${title}`, () => assert.deepEqual(requisite(given), zones(...expected)));

  const NO_TOPOLOGY = 'no available topology found';
  const NO_KEY = 'no topology key found for node node-0';
  const missed: readonly (readonly [string, Given, message: string])[] = [
    [
      'without any Node (H-28, E-02)',
      { nodes: [{ keys: ['zone'] }] },
      'topologyKeys [zone] were not found on any nodes',
    ],
    [
      'if no node has the labels (H-29)',
      { nodes: withKeys(['zone', 'rack'], nodes(undefined, undefined)) },
      'topologyKeys [zone rack] were not found on any nodes',
    ],
    ['without any CSINode (H-30)', { nodes: withKeys(undefined, nodes('zone1')) }, NO_TOPOLOGY],
    ['if no CSINode has keys (H-31)', { nodes: withKeys([], nodes('zone1')) }, NO_TOPOLOGY],
    ['if no node has the driver (H-31)', { nodes: old }, NO_TOPOLOGY],
    [
      'if the selected node lacks the label (H-34)',
      { nodes: nodes(undefined, 'zone1'), selected: 0 },
      'topology labels from selected node map[other:x] does not match topology keys ' +
        'from CSINode [zone]',
    ],
    [
      'if the selected node has no CSINode (H-35)',
      { nodes: withKeys(undefined, nodes('zone1')), selected: 0 },
      'failed to get selected CSINode node-0: csinode.storage.k8s.io "node-0" not found',
    ],
    [
      'if the CSINode of the selected node has no keys (H-36)',
      { nodes: withKeys([], nodes('zone1')), selected: 0 },
      NO_KEY,
    ],
    ['if the selected node lacks the driver (H-36)', { nodes: old, selected: 0 }, NO_KEY],
  ];
  for (const [title, given, message] of missed)
    it(`are missed ${title}`, () => isRefused(given, message));
});

describe('the preferred terms with a selected node', () => {
  const place = (zone: string, rack: string) => ({ rack, zone });
  const selected = place('zone2', 'rackA');
  const allowed = allow({ zone: ['zone1', 'zone2'], rack: ['rackA', 'rackB'] });

  it('are the allowed ones, from the node’s own on (H-37)', () => {
    for (const given of bothWays({ nodes: registered(selected), selected: 0, allowed })) {
      assert.deepEqual(preferred(given), [
        selected,
        place('zone1', 'rackB'),
        place('zone2', 'rackB'),
        place('zone1', 'rackA'),
      ]);
      assert.deepEqual(terms({ ...given, strict: true }), {
        requisite: [selected],
        preferred: [selected],
      });
    }
  });

  it('are missed without a CSINode (H-38)', () =>
    isRefused({ nodes: [{ labels: selected }], selected: 0, allowed }, /^failed to get selected/));

  it('are missed if the node lacks a key of its CSINode (H-39)', () =>
    isRefused(
      { nodes: [{ labels: selected, keys: ['foo', 'rack'] }], selected: 0, allowed },
      'topology labels from selected node map[rack:rackA zone:zone2] does not match ' +
        'topology keys from CSINode [foo rack]',
    ));

  it('are those of all nodes, from its own on (H-40)', () => {
    const all = registered(selected, place('zone1', 'rackA'), place('zone1', 'rackB'));
    for (const given of bothWays({ nodes: all, selected: 0 })) {
      assert.deepEqual(preferred(given), [
        selected,
        place('zone1', 'rackB'),
        place('zone1', 'rackA'),
      ]);
      assert.deepEqual(preferred({ ...given, strict: true }), [selected]);
    }
  });

  it('are missed if nothing tells a topology (H-41)', () =>
    isRefused(
      { nodes: [{ labels: {}, keys: 'not registered' }], selected: 0 },
      'no topology key found for node node-0',
    ));

  it('are missed if the node is in no allowed zone (H-42)', () => {
    const given = { nodes: nodes('zone2'), selected: 0, allowed: allow({ zone: ['zone1'] }) };
    const begin = 'topology [{zone zone2}] from selected node "node-0" is not in requisite';
    assert.throws(() => terms(given), { message: `${begin}: [[{zone zone1}]]` });
    assert.throws(() => terms({ ...given, strict: true }), {
      message:
        `selected node '"node-0"' topology '[{zone zone2}]' is not in allowed topologies: ` +
        '[[{zone zone1}]]',
    });
  });

  it('are the allowed term, with fewer keys than the node; strictly the node’s (H-43)', () => {
    const labels = { disk: 'ssd', rack: 'rack1', zone: 'zone1' };
    const given = {
      nodes: registered(labels),
      selected: 0,
      allowed: allow({ disk: ['ssd'], zone: ['zone1'] }),
    };
    assert.deepEqual(preferred(given), [{ disk: 'ssd', zone: 'zone1' }]);
    assert.deepEqual(preferred({ ...given, strict: true }), [labels]);
  });

  it('are missed if the name of its zone only begins like an allowed one (H-44)', () =>
    isRefused(
      { nodes: nodes('zone10'), selected: 0, allowed: allow({ zone: ['zone1'] }) },
      /is not in (requisite|allowed topologies)/,
    ));

  it('are absent if the class allows empty terms only, unless they are strict', () => {
    const given = { nodes: nodes('zone1'), selected: 0, allowed: [{}] };
    assert.equal(terms(given), undefined);
    assert.throws(() => terms({ ...given, strict: true }), /not in allowed topologies: \[\]$/);
  });
});

describe('the requirement of a claim', () => {
  const [one, two, three] = ['1', '2', '3'].map((id) => ({ rack: id, zone: id }));
  const all = [one, two, three].map((labels) => labels ?? {});
  const firstTwo = allow({ rack: ['1'], zone: ['1'] }, { rack: ['2'], zone: ['2'] });
  const cases: readonly (readonly [string, Omit<Given, 'nodes'>, string, string])[] = [
    ['late, on node 0 (H-45)', { selected: 0 }, '123', '123'],
    ['late, on node 1 (H-46)', { selected: 1 }, '123', '231'],
    ['late, on node 0, two allowed (H-47)', { selected: 0, allowed: firstTwo }, '12', '12'],
    ['late, on node 0, strict (H-48)', { selected: 0, strict: true }, '1', '1'],
    [
      'late, on node 0, strict, two allowed (H-49)',
      { selected: 0, strict: true, allowed: firstTwo },
      '1',
      '1',
    ],
    ['immediate (H-50)', {}, '123', '312'],
    ['immediate, two allowed (H-51)', { allowed: firstTwo }, '12', '12'],
    ['immediate, strict (H-52)', { strict: true }, '123', '312'],
    ['immediate, strict, two allowed (H-53)', { strict: true, allowed: firstTwo }, '12', '12'],
  ];
  const ids = (found: readonly Labels[] = []) => found.map(({ zone }) => zone).join('');
  for (const [title, given, wanted, order] of cases)
    it(`is right: ${title}`, () => {
      const found = terms({ ...given, nodes: registered(...all) });
      assert.deepEqual([ids(found?.requisite), ids(found?.preferred)], [wanted, order]);
    });

  it('is missed while the selected node lacks a label, and there once it has it (H-54, H-55)', () => {
    const keys = ['a', 'b', 'c', 'd'];
    const labels = { a: '1', b: '2', c: '3' };
    assert.throws(() => terms({ nodes: [{ labels, keys }], selected: 0 }), {
      message: /^topology labels from selected node map\[a:1 b:2 c:3\] does not match/,
    });
    const complete = { ...labels, d: '4' };
    assert.deepEqual(terms({ nodes: [{ labels: complete, keys }], selected: 0 }), {
      requisite: [complete],
      preferred: [complete],
    });
  });

  it('is missed if the selected Node is gone and its CSINode is not (R-08)', () =>
    assert.throws(
      () => terms({ nodes: [{ keys: ['zone'] }], selected: 0 }),
      (error) => {
        assert.ok(error instanceof RefusedError && !(error instanceof MissingCsiNodeError));
        assert.equal(
          error.message,
          'topology labels from selected node map[] does not match topology keys from CSINode [zone]',
        );
        return true;
      },
    ));

  it('needs another node if the selected one has no CSINode (B-41)', () =>
    assert.throws(() => terms({ nodes: [], selected: 0 }), MissingCsiNodeError));

  it('waits, where it is missed, for a change of nodes or the class', () =>
    assert.throws(
      () => terms({ nodes: [] }),
      (error) => {
        assert.ok(error instanceof RefusedError);
        assert.deepEqual(error.waitsFor, [
          { resource: 'nodes', name: '*', seen: fingerprintNodes(aCluster()) },
          { resource: 'storageclasses', name: 'class', seen: '1' },
        ]);
        return true;
      },
    ));
});
