import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { NodeSelectorTerm } from '#src/kube/objects.ts';
import { classHint, segmentHint, segmentOfTerm, volumeHints } from '#src/capacity/hints.ts';

const isIn = (key: string, ...values: string[]) => ({ key, operator: 'In', values });

describe('the segment of a term of a node affinity', () => {
  const cases: readonly (readonly [string, NodeSelectorTerm, segment?: unknown])[] = [
    ['is unknown with fields (M-29)', { matchFields: [isIn('metadata.name', 'n1')] }],
    [
      'is unknown with another operator (M-30)',
      { matchExpressions: [{ key: 'a', operator: 'NotIn', values: ['1'] }] },
    ],
    ['is unknown with two values (M-31)', { matchExpressions: [isIn('a', '1', '2')] }],
    ['is unknown with no value', { matchExpressions: [{ key: 'a', operator: 'In' }] }],
    ['has one value (M-32)', { matchExpressions: [isIn('a', '1')] }, [['a', '1']]],
    [
      'has the values of two expressions, sorted by key (M-33, M-34)',
      { matchExpressions: [isIn('b', 'B'), isIn('a', 'A')] },
      [
        ['a', 'A'],
        ['b', 'B'],
      ],
    ],
    ['is the whole cluster without expressions', {}, []],
  ];
  for (const [title, term, segment] of cases)
    it(title, () => assert.deepEqual(segmentOfTerm(term), segment));
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
