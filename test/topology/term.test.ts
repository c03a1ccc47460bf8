import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  compareTerms,
  compareTexts,
  describeLabels,
  describeTerms,
  isSubset,
  sortLabels,
  sortTerms,
  toSegments,
  toTerm,
  type TopologyTerm,
} from '#src/topology/term.ts';

const zone = ['zone', 'zone1'] as const;
const instance = ['instance', 'i1'] as const;

describe('sortLabels', () => {
  it('leaves an empty term empty (H-56)', () => assert.deepEqual(sortLabels([]), []));
  it('leaves a single label (H-57)', () => assert.deepEqual(sortLabels([zone]), [zone]));
  it('puts the smaller key first (H-58)', () =>
    assert.deepEqual(sortLabels([zone, instance]), [instance, zone]));
  it('puts the smaller value of a key first (H-59)', () =>
    assert.deepEqual(sortLabels([['zone', 'zone2'], zone]), [zone, ['zone', 'zone2']]));
});

describe('compareTerms', () => {
  const inOrder = (first: TopologyTerm, second: TopologyTerm): void => {
    assert.ok(compareTerms(first, second) < 0);
    assert.ok(compareTerms(second, first) > 0);
    assert.equal(compareTerms(first, first), 0);
    assert.equal(compareTerms(second, second), 0);
  };

  it('puts the term with fewer segments first (H-60)', () => inOrder([zone], [instance, zone]));
  it('puts the smaller key first (H-61)', () => inOrder([instance], [zone]));
  it('puts the smaller value first (H-62)', () => inOrder([zone], [['zone', 'zone2']]));
});

describe('isSubset', () => {
  const both = [instance, zone];
  const cases: readonly (readonly [string, TopologyTerm, TopologyTerm, boolean])[] = [
    ['an empty term of an empty one (H-63)', [], [], true],
    ['an empty term of any (H-64)', [], [zone], true],
    ['a term of an empty one (H-65)', [zone], [], false],
    ['a term of itself (H-66)', [zone], [zone], true],
    ['a term of one that has a later key too (H-67)', [instance], both, true],
    ['a longer term of a shorter one (H-68)', both, [instance], false],
    ['a term of one that has an earlier key too (H-69)', [zone], both, true],
    ['a longer term of its last segment (H-70)', both, [zone], false],
    ['a term of one with another key (H-71)', [instance], [zone], false],
    ['a term of one whose value begins alike', [zone], [['zone', 'zone10']], false],
  ];
  for (const [title, term, of, expected] of cases)
    it(`is ${expected ? 'true' : 'false'} for ${title}`, () =>
      assert.equal(isSubset(term, of), expected));
});

describe('sortTerms', () => {
  it('sorts terms, and drops one that is equal to another', () =>
    assert.deepEqual(sortTerms([[zone], [instance, zone], [instance], [instance, zone], [zone]]), [
      [instance],
      [zone],
      [instance, zone],
    ]));
});

describe('a term', () => {
  it('is made of segments, and has them again as segments', () => {
    const segments = { zone: 'zone1', rack: 'rackA' };
    assert.deepEqual(toTerm(segments), [
      ['rack', 'rackA'],
      ['zone', 'zone1'],
    ]);
    assert.deepEqual(toSegments(toTerm(segments)), segments);
  });

  it('has the last value of a key that it has twice', () =>
    assert.deepEqual(toSegments([['zone', 'a'], zone]), { zone: 'zone1' }));

  it('is written in messages as upstream’s program writes it', () => {
    assert.equal(describeTerms([[instance, zone], []]), '[[{instance i1} {zone zone1}] []]');
    assert.equal(describeLabels({ zone: 'a', rack: '1' }), 'map[rack:1 zone:a]');
  });
});

it('texts are ordered by their bytes, as in Go', () => {
  const texts = ['', 'a', 'a\uffee', 'a\u{1f600}', 'ab', 'zone1', 'zone10', 'é'];
  const byBytes = texts.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  assert.deepEqual(texts.toReversed().sort(compareTexts), byBytes);
});
