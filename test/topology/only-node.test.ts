import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { onlyNode } from '#src/topology/requirement.ts';
import { aCluster, registered } from './fake-cluster.ts';

describe('onlyNode', () => {
  const cluster = aCluster(registered({ zone: 'a' }, { zone: 'b' }));

  it('is a cluster of that node alone', () => {
    const only = onlyNode(cluster, 'node-1');
    assert.deepEqual([...only.nodes()], [{ name: 'node-1', labels: { zone: 'b' } }]);
    assert.deepEqual([...only.csiNodes()], [{ name: 'node-1', topologyKeys: ['zone'] }]);
    assert.deepEqual(only.node('node-1')?.labels, { zone: 'b' });
    assert.equal(only.node('node-0'), undefined);
    assert.equal(only.csiNode('node-0'), undefined);
    assert.equal(only.versionOf('nodes'), cluster.versionOf('nodes'));
  });

  it('is empty for a node that is gone', () => {
    const only = onlyNode(cluster, 'gone');
    assert.deepEqual([[...only.nodes()], [...only.csiNodes()]], [[], []]);
  });
});
