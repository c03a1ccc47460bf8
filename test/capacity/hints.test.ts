import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { NodeSelectorTerm } from '#src/kube/objects.ts';
import { classHint, segmentHint, segmentOfTerm, volumeHints } from '#src/capacity/hints.ts';

const isIn = (key: string, ...values: string[]) => ({ key, operator: 'In', values });

describe('the segment of a term of a node affinity', () => {
  const refused: Readonly<Record<string, NodeSelectorTerm>> = {
    'fields (M-29)': { matchFields: [isIn('metadata.name', 'n1')] },
    'another operator (M-30)': {
      matchExpressions: [{ key: 'a', operator: 'NotIn', values: ['1'] }],
    },
    'two values (M-31)': { matchExpressions: [isIn('a', '1', '2')] },
    'no value': { matchExpressions: [{ key: 'a', operator: 'In' }] },
  };
  for (const [title, term] of Object.entries(refused))
    it(`can't be told with ${title}`, () => assert.equal(segmentOfTerm(term), undefined));

  it('has the value of one expression (M-32)', () =>
    assert.deepEqual(segmentOfTerm({ matchExpressions: [isIn('a', '1')] }), [['a', '1']]));

  for (const [title, ...keys] of [
    ['has the values of two expressions (M-33)', 'a', 'b'],
    ['is sorted by key (M-34)', 'b', 'a'],
  ] as const)
    it(title, () => {
      const matchExpressions = keys.map((key) => isIn(key, key.toUpperCase()));
      const segment = [
        ['a', 'A'],
        ['b', 'B'],
      ];
      assert.deepEqual(segmentOfTerm({ matchExpressions }), segment);
    });

  it('is the whole cluster without expressions', () => assert.deepEqual(segmentOfTerm({}), []));
});

describe('what a volume changes', () => {
  const affinity = (...terms: NodeSelectorTerm[]) => ({
    storageClassName: 'fast',
    nodeAffinity: { required: { nodeSelectorTerms: terms } },
  });

  it('is its class without a node affinity', () =>
    assert.deepEqual(volumeHints({ storageClassName: 'fast' }), [classHint('fast')]));

  it('is the class without a name where it has none', () =>
    assert.deepEqual(volumeHints({}), [classHint('')]));

  it('is each segment that can be told', () => {
    const bad = { matchExpressions: [isIn('a', '1', '2')] };
    assert.deepEqual(volumeHints(affinity({ matchExpressions: [isIn('a', '1')] }, bad)), [
      segmentHint([['a', '1']]),
    ]);
  });
});
