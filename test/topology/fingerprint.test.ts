import assert from 'node:assert/strict';
import { performance } from 'node:perf_hooks';
import { describe, it } from 'node:test';
import { fingerprintNodes } from '#src/topology/fingerprint.ts';
import { aCluster, registered, type TestNode } from './fake-cluster.ts';

const ofNodes = (nodes: readonly TestNode[]): string => fingerprintNodes(aCluster(nodes));

describe('the fingerprint of nodes', () => {
  const one = { name: 'one', labels: { zone: 'a', color: 'red' }, keys: ['zone'] };
  const two = { name: 'two', labels: { zone: 'b' }, keys: ['zone'] };

  it('is the same in whatever order nodes come', () =>
    assert.equal(ofNodes([one, two]), ofNodes([two, one])));

  it('changes with the value of a registered key', () =>
    assert.notEqual(ofNodes([one]), ofNodes([{ ...one, labels: { zone: 'c' } }])));

  it('changes with the node that has a value', () =>
    assert.notEqual(ofNodes([one]), ofNodes([{ ...one, name: 'other' }])));

  it('changes with the registered keys', () =>
    assert.notEqual(ofNodes([one]), ofNodes([{ ...one, keys: ['zone', 'rack'] }])));

  it('does not change with other labels, or with nodes that have no registered key', () => {
    const plain = { name: 'plain', labels: { color: 'blue' } };
    assert.equal(ofNodes([one]), ofNodes([{ ...one, labels: { zone: 'a' } }, plain]));
  });

  it('does not mix up a missing key with an empty value, or one value with two', () => {
    const keys = ['a', 'b'];
    const marks = [{ a: '' }, { a: '', b: '' }, { a: 'x', b: '' }, { a: '', b: 'x' }].map(
      (labels) => ofNodes([{ labels, keys }]),
    );
    assert.equal(new Set(marks).size, 4);
  });

  it('of 5,000 nodes takes far less than a second', () => {
    const cluster = aCluster(
      registered(
        ...Array.from({ length: 5_000 }, (_, i) => ({ zone: `z${i % 3}`, host: `node-${i}` })),
      ),
    );
    const times = [1, 2, 3, 4, 5].map(() => {
      const startMs = performance.now();
      fingerprintNodes({ ...cluster, computed: { terms: new Map() } });
      return performance.now() - startMs;
    });
    // About 10 ms on an idle machine.
    assert.ok(Math.min(...times) < 500, `${times.join()} ms`);
  });
});

describe('the fingerprint of nodes without labels', () => {
  const one = { name: 'one', keys: ['zone'] };

  it('changes with the keys that a node has registered', () =>
    assert.notEqual(ofNodes([one]), ofNodes([{ ...one, keys: ['zone', 'rack'] }])));

  it('changes with the nodes that have registered any', () =>
    assert.notEqual(ofNodes([one]), ofNodes([one, { name: 'two', keys: ['zone'] }])));

  it('does not change with nodes that have registered none', () =>
    assert.equal(
      ofNodes([one]),
      ofNodes([one, { name: 'two', keys: [] }, { name: 'three', keys: 'not registered' }]),
    ));
});
