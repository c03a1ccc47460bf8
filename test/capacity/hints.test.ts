import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { NodeSelectorTerm } from '#src/kube/objects.ts';
import { readHint, segmentOfTerm, volumeHints } from '#src/capacity/hints.ts';

const isIn = (key: string, ...values: string[]) => ({ key, operator: 'In', values });

describe('the segment of a term of a node affinity', () => {
  const refused: Readonly<Record<string, readonly [NodeSelectorTerm, RegExp]>> = {
    'fields (M-29)': [{ matchFields: [isIn('metadata.name', 'n1')] }, /matchFields/],
    'another operator (M-30)': [
      { matchExpressions: [{ key: 'a', operator: 'NotIn', values: ['1'] }] },
      /a: the operator is NotIn, not In/,
    ],
    'two values (M-31)': [{ matchExpressions: [isIn('a', '1', '2')] }, /a: it has 2 values/],
    'no value': [{ matchExpressions: [{ key: 'a', operator: 'In' }] }, /a: it has 0 values/],
  };
  for (const [title, [term, message]] of Object.entries(refused))
    it(`can't be told with ${title}`, () => assert.match(String(segmentOfTerm(term)), message));

  it('has the value of one expression (M-32)', () =>
    assert.deepEqual(segmentOfTerm({ matchExpressions: [isIn('a', '1')] }), [['a', '1']]));

  it('has the values of two expressions (M-33)', () =>
    assert.deepEqual(segmentOfTerm({ matchExpressions: [isIn('a', '1'), isIn('b', '2')] }), [
      ['a', '1'],
      ['b', '2'],
    ]));

  it('is sorted by key (M-34)', () =>
    assert.deepEqual(segmentOfTerm({ matchExpressions: [isIn('b', '2'), isIn('a', '1')] }), [
      ['a', '1'],
      ['b', '2'],
    ]));

  it('is the whole cluster without expressions', () => assert.deepEqual(segmentOfTerm({}), []));
});

describe('what a volume changes', () => {
  const affinity = (...terms: NodeSelectorTerm[]) => ({
    storageClassName: 'fast',
    nodeAffinity: { required: { nodeSelectorTerms: terms } },
  });

  it('is its class without a node affinity', () =>
    assert.deepEqual(volumeHints({ storageClassName: 'fast' }), {
      hints: [{ className: 'fast' }],
      complaints: [],
    }));

  it('is the class without a name where it has none', () =>
    assert.deepEqual(volumeHints({}).hints, [{ className: '' }]));

  it('is each segment that can be told', () => {
    const bad = { matchExpressions: [isIn('a', '1', '2')] };
    const { hints, complaints } = volumeHints(
      affinity({ matchExpressions: [isIn('a', '1')] }, bad),
    );
    assert.deepEqual(hints, [{ segment: [['a', '1']] }]);
    assert.equal(complaints.length, 1);
  });
});

describe('a stored hint', () => {
  for (const hint of [{ className: 'fast' }, { segment: [['a', '1']] }, { segment: [] }])
    it(`is read as it was written: ${JSON.stringify(hint)}`, () =>
      assert.deepEqual(readHint(JSON.stringify(hint)), hint));

  for (const text of ['', '{', '7', '{}', '[]', '{"className":1}', '{"segment":[["a"]]}'])
    it(`is refused if nobody wrote it: ${text}`, () => assert.equal(readHint(text), undefined));
});
