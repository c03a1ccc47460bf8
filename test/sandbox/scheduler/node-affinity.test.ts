import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Json } from '../../../sandbox/api/json-value.ts';
import type { KubeObject } from '../../../sandbox/api/kube-object.ts';
import { allowsTopology, isReachable } from '../../../sandbox/scheduler/node-affinity.ts';

const node = {
  metadata: { name: 'n1', labels: { zone: 'a', number: '5' } },
} as unknown as KubeObject;

function reaches(...nodeSelectorTerms: Json[]): boolean {
  const spec = { nodeAffinity: { required: { nodeSelectorTerms } } };
  return isReachable({ spec } as unknown as KubeObject, node);
}

const term = (key: string, operator: string, ...values: string[]) => ({
  matchExpressions: [{ key, operator, values }],
});

describe('the node affinity of a volume', () => {
  it('allows every node if there is none', () =>
    assert.equal(isReachable({ spec: {} } as unknown as KubeObject, node), true));

  it('allows the nodes of any of its terms', () => {
    assert.equal(reaches(term('zone', 'In', 'b'), term('zone', 'In', 'a')), true);
    assert.equal(reaches(term('zone', 'In', 'b')), false);
  });

  it('allows no node with a term that is empty, and none without terms', () => {
    assert.equal(reaches({}), false);
    assert.equal(reaches(), false);
  });

  it('requires all expressions and fields of a term', () => {
    const both = {
      ...term('zone', 'In', 'a'),
      matchFields: [{ key: 'metadata.name', operator: 'In', values: ['n2'] }],
    };
    assert.equal(reaches(both), false);
    assert.equal(
      reaches({ matchFields: [{ key: 'metadata.name', operator: 'In', values: ['n1'] }] }),
      true,
    );
  });

  for (const [operator, values, expected] of [
    ['NotIn', ['b'], true],
    ['NotIn', ['5'], false],
    ['Exists', [], true],
    ['DoesNotExist', [], false],
    ['Gt', ['4'], true],
    ['Gt', ['5'], false],
    ['Lt', ['6'], true],
    ['Lt', ['5'], false],
    ['Unknown', ['5'], false],
  ] as const)
    it(`knows ${operator} ${values.join('')}: ${expected}`, () =>
      assert.equal(reaches(term('number', operator, ...values)), expected));
});

describe('the allowedTopologies of a class', () => {
  const allows = (...allowedTopologies: Json[]): boolean =>
    allowsTopology({ allowedTopologies } as unknown as KubeObject, node.metadata.labels ?? {});
  const zones = (...values: string[]) => ({ matchLabelExpressions: [{ key: 'zone', values }] });

  it('allow every node if there are none', () => assert.equal(allows(), true));
  it('allow the nodes of any term', () => assert.equal(allows(zones('b'), zones('c', 'a')), true));
  it('allow no other node', () => assert.equal(allows(zones('b')), false));
  it('allow no node with an empty term', () => assert.equal(allows({}), false));
});
