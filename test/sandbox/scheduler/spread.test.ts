import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { KubeObject } from '../../../sandbox/api/kube-object.ts';
import { spreadOrder } from '../../../sandbox/scheduler/spread.ts';

const node = (name: string, zone?: string) =>
  ({
    metadata: {
      name,
      ...(zone === undefined ? {} : { labels: { 'topology.kubernetes.io/zone': zone } }),
    },
  }) as unknown as KubeObject;
const pod = (owner?: string) =>
  ({
    metadata: owner === undefined ? {} : { ownerReferences: [{ uid: owner, controller: true }] },
  }) as unknown as KubeObject;
const placed = (nodeName: string, owner?: string) => ({ pod: pod(owner), nodeName });

const nodes = [node('a1', 'a'), node('a2', 'a'), node('b1', 'b')];
const [a1, a2, b1] = nodes as [KubeObject, KubeObject, KubeObject];
const order = (
  wanted: KubeObject,
  pods: ReturnType<typeof placed>[],
  candidates: KubeObject[] = nodes,
) => spreadOrder(wanted, candidates, { nodes, placed: pods }).map(({ metadata }) => metadata.name);

describe('spreadOrder', () => {
  it('sorts empty nodes by name', () => assert.deepEqual(order(pod(), []), ['a1', 'a2', 'b1']));

  it('prefers the emptier zone, then the emptier node', () =>
    assert.deepEqual(order(pod(), [placed('a1')]), ['b1', 'a2', 'a1']));

  it('counts the pods of the same controller before all others', () =>
    assert.deepEqual(order(pod('set'), [placed('b1'), placed('b1'), placed('a1', 'set')]), [
      'b1',
      'a2',
      'a1',
    ]));

  it('counts the pods of a zone on nodes that are no candidates', () =>
    assert.deepEqual(order(pod('set'), [placed('a1', 'set')], [a2, b1]), ['b1', 'a2']));

  it('counts a node without a zone as a zone', () =>
    assert.deepEqual(
      spreadOrder(pod(), [a1, node('x')], { nodes: [a1, node('x')], placed: [placed('a1')] }).map(
        ({ metadata }) => metadata.name,
      ),
      ['x', 'a1'],
    ));
});
