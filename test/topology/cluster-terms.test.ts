import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { clusterTerms, registeredKeys, termOf } from '#src/topology/cluster-topology.ts';
import { aCluster, registered } from './fake-cluster.ts';

describe('the keys that the driver has registered', () => {
  it('are those of most nodes, if nodes differ', () => {
    const labels = { zone: 'a', rack: '1' };
    const cluster = aCluster([{ labels, keys: ['zone'] }, ...registered(labels, labels)]);
    assert.deepEqual(registeredKeys(cluster), ['zone', 'rack']);
  });

  it('are the same on every worker, if as many nodes have each', () => {
    const nodes = [
      { labels: { zone: 'a', rack: '1' }, keys: ['zone'] },
      { labels: { zone: 'a', rack: '1' }, keys: ['rack'] },
    ];
    assert.deepEqual(registeredKeys(aCluster(nodes)), ['rack']);
    assert.deepEqual(registeredKeys(aCluster(nodes.toReversed())), ['rack']);
  });

  it('are those that some node has as labels, if most nodes’ keys are on none', () => {
    const nodes = [{ keys: ['new'] }, { keys: ['new'] }, ...registered({ zone: 'a' })];
    assert.deepEqual(registeredKeys(aCluster(nodes)), ['zone']);
  });

  it('are those of most nodes, if no node has any as labels', () => {
    const nodes = [{ keys: ['old'] }, { keys: ['new'] }, { keys: ['new'] }];
    assert.deepEqual(registeredKeys(aCluster(nodes)), ['new']);
  });
});

describe('the terms of the nodes', () => {
  it('are refused for a key that no label can have', () => {
    const invalid = ['a b', '', '-a', 'a/', '/a', 'A/a', 'a..b/c', 'x'.repeat(64), '__proto__'];
    invalid.push(`${'x'.repeat(254)}/a`);
    for (const key of invalid)
      assert.throws(() => clusterTerms(aCluster([]), [key]), {
        message: `error parsing topology keys selector: "${key}" is no valid key of a label`,
      });
  });

  it('are found by every key that a label can have', () => {
    for (const key of ['a', 'A.b_c-d', 'x'.repeat(63), 'example.com/zone', 'constructor']) {
      const cluster = aCluster([{ labels: { [key]: '1' } }]);
      assert.deepEqual(clusterTerms(cluster, [key]), [[[key, '1']]]);
    }
  });

  it('do not contain what every object of JavaScript has', () =>
    assert.equal(termOf({ zone: 'a' }, ['constructor']), undefined));
});
