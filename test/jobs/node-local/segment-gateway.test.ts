import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { findSegmentGateway } from '#src/jobs/node-local/segment-gateway.ts';
import { aCluster } from '../../volumes/topology/fake-cluster.ts';

const NODE_KEY = 'topology.example/node';
const ZONE_KEY = 'topology.example/zone';

describe('findSegmentGateway', () => {
  const topology = aCluster([
    { name: 'a', labels: { [NODE_KEY]: 'a', [ZONE_KEY]: 'east' }, keys: [NODE_KEY] },
    { name: 'b', labels: { [NODE_KEY]: 'b', [ZONE_KEY]: 'east' }, keys: [NODE_KEY] },
  ]);
  const find = (key: string, value: string, ready: readonly string[]): string | undefined =>
    findSegmentGateway([[key, value]], topology, { readyNodes: () => ready });

  it('is that of the node whose labels are the segment', () => {
    assert.equal(find(NODE_KEY, 'b', ['a', 'b']), 'node:b');
  });

  it('is that of the first of several nodes', () => {
    assert.equal(find(ZONE_KEY, 'east', ['a', 'b']), 'node:a');
  });

  it('is none where no such node has a gateway', () => {
    assert.equal(find(NODE_KEY, 'b', ['a', 'c']), undefined);
  });
});
