import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Labels, Volume } from '#src/kube/objects.ts';
import { creatingNode, isOnNode } from '#src/volumes/own-node.ts';
import { aVolume } from './builders.ts';

const DRIVER = 'local.example';
const IDENTITY = 'storage.kubernetes.io/csiProvisionerIdentity';
const createdOn = (node: string): string => `1-2-${DRIVER}-${node}`;

/** @param nodes  values of the key "node" that the volume's affinity names */
function volumeOf(identity: string, nodes?: readonly string[]): Volume {
  const matchExpressions = [{ key: 'node', operator: 'In', values: nodes ?? [] }];
  const nodeAffinity = { required: { nodeSelectorTerms: [{ matchExpressions }] } };
  const csi = { driver: DRIVER, volumeHandle: 'h', volumeAttributes: { [IDENTITY]: identity } };
  return aVolume({ spec: { csi, ...(nodes === undefined ? {} : { nodeAffinity }) } });
}

describe('a volume, for a process that serves node-a', () => {
  const isOurs = (volume: Volume, labels: Labels | undefined = { node: 'a' }): boolean =>
    isOnNode(volume, { driver: DRIVER, node: 'node-a', labels });

  it('is there if its affinity matches the labels of the node (F-18)', () =>
    assert.ok(isOurs(volumeOf(createdOn('node-b'), ['a', 'b']))));
  it('is elsewhere if its affinity matches another node (F-17, R-26)', () =>
    assert.ok(!isOurs(volumeOf(createdOn('node-a'), ['b']))));
  it('without an affinity is of the node that created it', () => {
    assert.ok(isOurs(volumeOf(createdOn('node-a'))));
    assert.ok(!isOurs(volumeOf(createdOn('node-b'))));
  });
  it('of which neither affinity nor creator is known is deleted by whoever sees it', () =>
    assert.ok(isOurs(volumeOf(`1795338154482-1234-${DRIVER}`))));
  it('of a driver without topology is of the node that created it, whatever its affinity', () => {
    const served = { driver: DRIVER, node: 'node-a', labels: undefined };
    assert.ok(isOnNode(volumeOf(createdOn('node-a'), ['b']), served));
  });
});

describe('the node that created a volume', () => {
  it('is what follows the driver in the identity', () =>
    assert.equal(creatingNode(volumeOf(createdOn('worker-1')), DRIVER), 'worker-1'));
  it('is unknown for a provisioner of all nodes, another driver, and other texts', () => {
    for (const identity of [`1-2-${DRIVER}`, '1-2-other.example-worker', 'x', ''])
      assert.equal(creatingNode(volumeOf(identity), DRIVER), undefined, identity);
    assert.equal(creatingNode({ ...aVolume(), spec: {} }, DRIVER), undefined);
  });
});
