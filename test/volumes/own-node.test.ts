import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Labels, Volume } from '#src/kube/objects.ts';
import { creatingNode, isOnNode } from '#src/volumes/own-node.ts';

const DRIVER = 'local.example';
const IDENTITY = 'storage.kubernetes.io/csiProvisionerIdentity';

/** @param o.nodes  values of the key "node" that the volume's affinity names */
function aVolume(o: { readonly nodes?: readonly string[]; readonly identity?: string }): Volume {
  const { nodes, identity = `1795338154482-1234-${DRIVER}` } = o;
  const matchExpressions = [{ key: 'node', operator: 'In', values: nodes ?? [] }];
  return {
    metadata: { name: 'pv', uid: 'u', resourceVersion: '1' },
    spec: {
      csi: { driver: DRIVER, volumeHandle: 'h', volumeAttributes: { [IDENTITY]: identity } },
      ...(nodes === undefined
        ? {}
        : { nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions }] } } }),
    },
  };
}

const createdOn = (node: string): string => `1-2-${DRIVER}-${node}`;

describe('a volume, for a process that serves node-a', () => {
  const isOurs = (volume: Volume, labels: Labels | undefined = { node: 'a' }): boolean =>
    isOnNode(volume, { driver: DRIVER, node: 'node-a', labels });

  it('is there if its affinity matches the labels of the node (F-18)', () =>
    assert.ok(isOurs(aVolume({ nodes: ['a', 'b'], identity: createdOn('node-b') }))));

  it('is elsewhere if its affinity matches another node (F-17, R-26)', () =>
    assert.ok(!isOurs(aVolume({ nodes: ['b'], identity: createdOn('node-a') }))));

  it('without an affinity is of the node that created it', () => {
    assert.ok(isOurs(aVolume({ identity: createdOn('node-a') })));
    assert.ok(!isOurs(aVolume({ identity: createdOn('node-b') })));
  });

  it('of which neither affinity nor creator is known is deleted by whoever sees it', () =>
    assert.ok(isOurs(aVolume({}))));

  it('of a driver without topology is of the node that created it, whatever its affinity', () => {
    const volume = aVolume({ nodes: ['b'], identity: createdOn('node-a') });
    assert.ok(isOnNode(volume, { driver: DRIVER, node: 'node-a', labels: undefined }));
  });
});

describe('the node that created a volume', () => {
  const nodeOf = (identity: string): string | undefined =>
    creatingNode(aVolume({ identity }), DRIVER);

  it('is what follows the driver in the identity', () => {
    assert.equal(nodeOf(createdOn('worker-1')), 'worker-1');
  });

  it('is unknown for a provisioner of all nodes, another driver, and other texts', () => {
    for (const identity of [`1-2-${DRIVER}`, '1-2-other.example-worker', 'x', ''])
      assert.equal(nodeOf(identity), undefined, identity);
    const { metadata } = aVolume({});
    assert.equal(creatingNode({ metadata, spec: {} }, DRIVER), undefined);
  });
});
