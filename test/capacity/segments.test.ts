import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { describeSegment, segmentsOf } from '#src/capacity/items.ts';
import type { CsiNodeView, NodeView } from '#src/topology/cluster-topology.ts';
import { compareTexts } from '#src/topology/term.ts';

type Labels = Readonly<Record<string, string>>;

/** Nodes by name, each with its labels and with the driver's keys; undefined where there is no such
 * object, or the driver is not registered. */
interface Cluster {
  readonly nodes?: Readonly<Record<string, Labels>>;
  readonly csiNodes?: Readonly<Record<string, readonly string[] | undefined>>;
}

/** The segments, each as the values of its keys. */
function segments({ nodes = {}, csiNodes = {} }: Cluster): readonly string[] {
  const found = segmentsOf({
    node: (name): NodeView | undefined =>
      Object.hasOwn(nodes, name) ? { name, labels: nodes[name] ?? {} } : undefined,
    csiNodes: (): readonly CsiNodeView[] =>
      Object.entries(csiNodes).map(([name, topologyKeys]) => ({ name, topologyKeys })),
  });
  return found.map(describeSegment).toSorted(compareTexts);
}

const ONE: Cluster = { nodes: { n1: { zone: 'a' } }, csiNodes: { n1: ['zone'] } };
const DEEP = { a: '1', b: '2', c: '3' };
const KEYS = ['a', 'b', 'c'];

const CASES: Readonly<Record<string, readonly [Cluster, readonly string[]]>> = {
  'none without nodes (N-01)': [{}, []],
  'one of a node with driver, keys and labels (N-02)': [ONE, ['zone=a']],
  'none of a node without CSINode (N-03)': [{ nodes: ONE.nodes ?? {} }, []],
  'none of a CSINode without node (N-04)': [{ csiNodes: { n1: ['zone'] } }, []],
  'none of a node without the labels (N-05)': [{ ...ONE, nodes: { n1: { other: 'a' } } }, []],
  'two of two nodes with different values (N-06)': [
    {
      nodes: { n1: { zone: 'a' }, n2: { zone: 'b' } },
      csiNodes: { n1: ['zone'], n2: ['zone'] },
    },
    ['zone=a', 'zone=b'],
  ],
  'one of two nodes with the same values (N-07, N-08)': [
    {
      nodes: { n1: { zone: 'a', x: '1' }, n2: { zone: 'a', x: '2' } },
      csiNodes: { n1: ['zone'], n2: ['zone'] },
    },
    ['zone=a'],
  ],
  'one of two nodes with three equal values (N-09)': [
    { nodes: { n1: DEEP, n2: DEEP }, csiNodes: { n1: KEYS, n2: KEYS } },
    ['a=1,b=2,c=3'],
  ],
  'two of nodes with different keys (N-10)': [
    { nodes: { n1: DEEP, n2: DEEP }, csiNodes: { n1: ['a'], n2: ['a', 'b'] } },
    ['a=1', 'a=1,b=2'],
  ],
  'two of nodes that differ in part (N-11)': [
    { nodes: { n1: DEEP, n2: { ...DEEP, c: '4' } }, csiNodes: { n1: KEYS, n2: KEYS } },
    ['a=1,b=2,c=3', 'a=1,b=2,c=4'],
  ],
  'one of nodes with the keys in another order (N-12)': [
    { nodes: { n1: DEEP, n2: DEEP }, csiNodes: { n1: KEYS, n2: KEYS.toReversed() } },
    ['a=1,b=2,c=3'],
  ],
  'none of a node that has another driver only (N-13)': [
    { ...ONE, csiNodes: { n1: undefined } },
    [],
  ],
  'one of a key that is registered twice': [
    { ...ONE, csiNodes: { n1: ['zone', 'zone'] } },
    ['zone=a'],
  ],
  'the whole cluster of a driver without keys': [
    { nodes: { n1: {}, n2: { zone: 'a' } }, csiNodes: { n1: [], n2: [] } },
    ['the whole cluster'],
  ],
  'none of a key that only the prototype has': [{ ...ONE, csiNodes: { n1: ['constructor'] } }, []],
};

describe('segments of the cluster', () => {
  for (const [title, [cluster, expected]] of Object.entries(CASES))
    it(`are ${title}`, () => assert.deepEqual(segments(cluster), expected));
});
