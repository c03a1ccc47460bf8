import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { fingerprintNodes } from '#src/topology/fingerprint.ts';
import { aCluster, type TestNode } from './fake-cluster.ts';

const ofNodes = (...nodes: readonly TestNode[]): string => fingerprintNodes(aCluster(nodes));
const one = { name: 'one', labels: { zone: 'a', color: 'red' }, keys: ['zone'] };
const two = { name: 'two', labels: { zone: 'b' }, keys: ['zone'] };
const bare = { name: 'one', keys: ['zone'] };
const keys = ['zone', 'rack'];

describe('the fingerprint of nodes changes', () => {
  const cases: Readonly<Record<string, readonly [string, string]>> = {
    'with the value of a registered key': [
      ofNodes(one),
      ofNodes({ ...one, labels: { zone: 'c' } }),
    ],
    'with the node that has a value': [ofNodes(one), ofNodes({ ...one, name: 'other' })],
    'with the registered keys': [ofNodes(one), ofNodes({ ...one, keys })],
    'with the keys of a node without labels': [ofNodes(bare), ofNodes({ ...bare, keys })],
    'with the nodes that have registered any': [
      ofNodes(bare),
      ofNodes(bare, { ...bare, name: 'b' }),
    ],
  };
  for (const [title, [before, after]] of Object.entries(cases))
    it(title, () => assert.notEqual(before, after));

  it('between a missing key and an empty value, and between one value and two', () => {
    const labels = [{ a: '' }, { a: '', b: '' }, { a: 'x', b: '' }, { a: '', b: 'x' }];
    const marks = labels.map((each) => ofNodes({ labels: each, keys: ['a', 'b'] }));
    assert.equal(new Set(marks).size, 4);
  });
});

describe('the fingerprint of nodes stays', () => {
  const plain = { name: 'plain', labels: { color: 'blue' } };
  const keyless: readonly TestNode[] = [
    { name: 'two', keys: [] },
    { name: 'three', keys: 'not registered' },
  ];
  const cases: Readonly<Record<string, readonly [string, string]>> = {
    'in whatever order nodes come': [ofNodes(one, two), ofNodes(two, one)],
    'with other labels': [ofNodes(one), ofNodes({ ...one, labels: { zone: 'a' } })],
    'with nodes that have no registered key': [ofNodes(one), ofNodes(one, plain)],
    'with nodes that have registered none': [ofNodes(bare), ofNodes(bare, ...keyless)],
  };
  for (const [title, [before, after]] of Object.entries(cases))
    it(title, () => assert.equal(before, after));
});
