import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Volume } from '#src/kube/objects.ts';
import {
  chooseDeletingNode,
  chooseNodeOfSegment,
  creatingNode,
} from '#src/node-local/node-rules.ts';
import { aCluster, registered } from '../topology/fake-cluster.ts';

const DRIVER = 'local.example';
const IF_NODE_IS_GONE =
  'if its node is gone for good, so is the volume: delete the PersistentVolume and remove its ' +
  'finalizer external-provisioner.volume.kubernetes.io/finalizer';
const IDENTITY = 'storage.kubernetes.io/csiProvisionerIdentity';

/** @param nodes values of the key "node" that the volume's affinity names */
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

const cluster = aCluster(registered({ node: 'a' }, { node: 'b' }, { node: 'c' }));

function choose(volume: Volume, readyNodes: readonly string[], hasTopology = true) {
  return chooseDeletingNode(volume, {
    driver: DRIVER,
    gateways: { readyNodes: () => readyNodes, isReady: (node) => readyNodes.includes(node) },
    topology: hasTopology ? cluster : undefined,
  });
}

const createdOn = (node: string): string => `1-2-${DRIVER}-${node}`;

describe('chooseDeletingNode', () => {
  const all = ['node-0', 'node-1', 'node-2'];

  it('takes the node that the affinity of the volume matches (F-18)', () =>
    assert.deepEqual(choose(aVolume({ nodes: ['b'] }), all), { kind: 'node', name: 'node-1' }));

  it('takes no other node where that one has no gateway (F-17)', () =>
    assert.deepEqual(choose(aVolume({ nodes: ['b'] }), ['node-0', 'node-2']), {
      kind: 'none',
      message: 'no gateway is ready on node node-1, where the volume is',
      nodes: ['node-1'],
      isGone: false,
    }));

  it('takes the node that created the volume, where several match', () => {
    const identity = createdOn('node-2');
    const volume = aVolume({ nodes: ['a', 'b', 'c'], identity });
    assert.deepEqual(choose(volume, all), { kind: 'node', name: 'node-2' });
    assert.deepEqual(choose(volume, ['node-0', 'node-1']), { kind: 'node', name: 'node-0' });
    const none = choose(volume, []);
    assert.equal(
      none.kind === 'none' && none.message,
      'no gateway is ready on node node-0 and 2 others, where the volume is',
    );
  });

  it('takes only the node that created a volume without affinity', () => {
    const volume = aVolume({ identity: createdOn('node-1') });
    assert.deepEqual(choose(volume, all), { kind: 'node', name: 'node-1' });
    assert.deepEqual(choose(volume, ['node-0', 'node-2']), {
      kind: 'none',
      message: `no gateway is ready on node node-1, which created the volume; ${IF_NODE_IS_GONE}`,
      nodes: ['node-1'],
      isGone: false,
    });
  });

  it('reports a volume without affinity whose creating node is gone', () => {
    const found = choose(aVolume({ identity: createdOn('gone') }), all);
    assert.equal(found.kind === 'none' && found.isGone, true);
  });

  it('takes any node for a volume of which neither affinity nor creator is known', () => {
    assert.deepEqual(choose(aVolume({}), all), { kind: 'node', name: 'node-0' });
    assert.deepEqual(choose(aVolume({ nodes: ['gone'] }), all, false), {
      kind: 'node',
      name: 'node-0',
    });
    const none = choose(aVolume({}), []);
    assert.equal(none.kind === 'none' && none.message, 'no node has a gateway that is ready');
  });

  it('says what to do where no node matches', () => {
    const known = choose(aVolume({ nodes: ['gone'], identity: createdOn('gone') }), all);
    assert.deepEqual(known, {
      kind: 'none',
      message:
        'no node matches the node affinity of the volume, which node gone created; ' +
        IF_NODE_IS_GONE,
      nodes: ['gone'],
      isGone: true,
    });
    const unknown = choose(aVolume({ nodes: ['gone'] }), all);
    assert.ok(
      unknown.kind === 'none' && unknown.message.endsWith(`of the volume; ${IF_NODE_IS_GONE}`),
    );
    assert.deepEqual(unknown.nodes, []);
  });
});

describe('creatingNode', () => {
  const nodeIn = (identity: string | undefined): string | undefined =>
    creatingNode(aVolume(identity === undefined ? {} : { identity }), DRIVER);

  it('is what follows the driver in the identity', () => {
    assert.equal(nodeIn(createdOn('worker-1.example')), 'worker-1.example');
  });

  it('is unknown for a provisioner of all nodes, another driver, and other texts', () => {
    for (const identity of [`1-2-${DRIVER}`, '1-2-other-node', 'node', '', `1-2-${DRIVER}x-node`])
      assert.equal(nodeIn(identity), undefined, identity);
    assert.equal(creatingNode({ ...aVolume({}), spec: {} }, DRIVER), undefined);
  });
});

describe('chooseNodeOfSegment', () => {
  const gateways = { readyNodes: () => ['gone', 'node-1', 'node-2'], isReady: () => true };

  it('is the first with a gateway whose labels are the segment', () => {
    assert.equal(chooseNodeOfSegment([['node', 'c']], { gateways, topology: cluster }), 'node-2');
    assert.equal(chooseNodeOfSegment([], { gateways, topology: cluster }), 'gone');
    assert.equal(chooseNodeOfSegment([['node', 'a']], { gateways, topology: cluster }), undefined);
  });

  it('is any for the segment of a driver without topology', () =>
    assert.equal(chooseNodeOfSegment([], { gateways, topology: undefined }), 'gone'));
});
