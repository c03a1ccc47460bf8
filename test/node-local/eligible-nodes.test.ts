import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { TopologySelectorTerm } from '#src/kube/objects.ts';
import { eligibleNodes } from '#src/node-local/node-rules.ts';
import { aClass } from '../volumes/builders.ts';
import { aCluster, allow, type TestNode } from '../topology/fake-cluster.ts';

const onNode = (name: string, keys: TestNode['keys'] = ['node']): TestNode => ({
  labels: { node: name, zone: 'z' },
  keys,
});

function eligible(nodes: readonly TestNode[], allowed?: readonly TopologySelectorTerm[]) {
  return eligibleNodes({
    cls: aClass(allowed === undefined ? {} : { allowedTopologies: allowed }),
    readyNodes: ['node-0', 'node-1', 'node-2'],
    topology: aCluster(nodes),
  });
}

describe('eligibleNodes', () => {
  it('are those with a gateway on which the driver is registered, each with its own segments', () =>
    assert.deepEqual(eligible([onNode('a'), onNode('b', 'not registered'), onNode('c')]), [
      { name: 'node-0', segments: { node: 'a' } },
      { name: 'node-2', segments: { node: 'c' } },
    ]));

  it('do not include nodes without a Node, a CSINode, keys, or labels for the keys', () =>
    assert.deepEqual(
      eligible([{ keys: ['node'] }, onNode('b', []), { labels: {}, keys: ['node'] }]),
      [],
    ));

  it('are limited to the topologies that the class allows (B-35)', () => {
    const nodes = [onNode('a'), onNode('b')];
    assert.deepEqual(
      eligible(nodes, allow({ node: ['b', 'c'] })).map(({ name }) => name),
      ['node-1'],
    );
    assert.deepEqual(eligible(nodes, allow({ node: ['elsewhere'] })), []);
  });

  it('are all where too many topologies are allowed, so that planning says so', () => {
    const values = Array.from({ length: 10_001 }, (_, i) => `v${i}`);
    assert.equal(eligible([onNode('a'), onNode('b')], allow({ node: values })).length, 2);
  });

  it('are found if one of two allowed terms that begin alike is their own', () => {
    const keys = ['node', 'zone'];
    const allowed = allow({ node: ['a'], zone: ['y', 'z'] });
    const found = eligible([onNode('a', keys), onNode('b', keys)], allowed);
    assert.deepEqual(found, [{ name: 'node-0', segments: { node: 'a', zone: 'z' } }]);
  });

  it('are found in a moment among thousands of nodes and of allowed topologies', () => {
    const names = Array.from({ length: 4_000 }, (_, i) => `node-${i}`);
    const startMs = performance.now();
    const found = eligibleNodes({
      cls: aClass({ allowedTopologies: allow({ node: names.slice(1_000) }) }),
      readyNodes: names,
      topology: aCluster(names.map((name) => onNode(name))),
    });
    assert.equal(found.length, 3_000);
    const tookMs = performance.now() - startMs;
    assert.ok(tookMs < 1_000, `${tookMs} ms`);
  });

  it('are all with a gateway for a driver without topology (B-34)', () =>
    assert.deepEqual(
      eligibleNodes({
        cls: aClass({ allowedTopologies: allow({ node: ['elsewhere'] }) }),
        readyNodes: ['x'],
        topology: undefined,
      }),
      [{ name: 'x', segments: undefined }],
    ));
});
