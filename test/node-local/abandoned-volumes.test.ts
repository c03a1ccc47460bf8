import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { NodeSelectorTerm, Volume } from '#src/kube/objects.ts';
import { isOnGoneNode } from '#src/node-local/node-rules.ts';

const DRIVER = 'local.example';
const IDENTITY = 'storage.kubernetes.io/csiProvisionerIdentity';

function aVolume(terms: readonly NodeSelectorTerm[] | undefined, identity = ''): Volume {
  return {
    metadata: { name: 'pv', uid: 'u', resourceVersion: '1' },
    spec: {
      csi: { driver: DRIVER, volumeHandle: 'h', volumeAttributes: { [IDENTITY]: identity } },
      ...(terms === undefined ? {} : { nodeAffinity: { required: { nodeSelectorTerms: terms } } }),
    },
  };
}

const term = (...values: string[]): NodeSelectorTerm => ({
  matchExpressions: [{ key: 'node', operator: 'In', values }],
});
const isGone = (volume: Volume): boolean =>
  isOnGoneNode(volume, { driver: DRIVER, node: 'gone', labels: [{ node: 'here' }] });

describe('isOnGoneNode', () => {
  it('holds for a volume whose affinity names the node, and that no node can reach', () => {
    assert.ok(isGone(aVolume([term('gone')])));
    assert.ok(
      isGone(
        aVolume(
          [{ matchExpressions: [{ key: 'node', operator: 'In', values: ['x'] }] }],
          `1-2-${DRIVER}-gone`,
        ),
      ),
    );
  });

  it('does not hold for a volume that another node can reach', () => {
    assert.ok(!isGone(aVolume([term('gone'), term('here')])));
    assert.ok(!isGone(aVolume([term('here')], `1-2-${DRIVER}-gone`)));
  });

  it('does not hold for volumes of other nodes, without affinity, and of other drivers', () => {
    assert.ok(!isGone(aVolume([term('elsewhere')])));
    assert.ok(!isGone(aVolume([term('gone', 'elsewhere')])));
    assert.ok(!isGone(aVolume([{}])));
    assert.ok(!isGone(aVolume(undefined, `1-2-${DRIVER}-gone`)));
    const foreign = aVolume([term('gone')]);
    assert.ok(
      !isGone({ ...foreign, spec: { ...foreign.spec, csi: { driver: 'x', volumeHandle: 'h' } } }),
    );
  });

  it('does not hold for an affinity that can’t be read', () =>
    assert.ok(
      !isGone(
        aVolume(
          [{ matchExpressions: [{ key: 'node', operator: 'Near', values: ['gone'] }] }],
          `1-2-${DRIVER}-gone`,
        ),
      ),
    ));
});
