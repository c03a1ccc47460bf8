import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Labels, NodeSelectorRequirement, NodeSelectorTerm } from '#src/kube/objects.ts';
import { matchesNodeAffinity } from '#src/topology/node-affinity.ts';

const matches = (labels: Labels, ...nodeSelectorTerms: NodeSelectorTerm[]): boolean =>
  matchesNodeAffinity({ required: { nodeSelectorTerms } }, labels);
const expression = (key: string, operator: string, ...values: string[]): NodeSelectorTerm => ({
  matchExpressions: [{ key, operator, values } satisfies NodeSelectorRequirement],
});

describe('a volume can be reached from a node', () => {
  it('if the volume has no affinity', () => {
    assert.equal(matchesNodeAffinity(undefined, {}), true);
    assert.equal(matchesNodeAffinity({}, {}), true);
  });

  it('if one of the terms matches', () => {
    const terms = [expression('zone', 'In', 'a'), expression('zone', 'In', 'b', 'c')];
    assert.equal(matches({ zone: 'c' }, ...terms), true);
    assert.equal(matches({ zone: 'd' }, ...terms), false);
  });

  it('if all expressions of a term match', () => {
    const both = {
      matchExpressions: [
        { key: 'zone', operator: 'In', values: ['a'] },
        { key: 'rack', operator: 'In', values: ['1'] },
      ],
    };
    assert.equal(matches({ zone: 'a', rack: '1' }, both), true);
    assert.equal(matches({ zone: 'a', rack: '2' }, both), false);
    assert.equal(matches({ zone: 'a' }, both), false);
  });

  it('never by zero terms, and never by a term without conditions', () => {
    assert.equal(matches({ zone: 'a' }), false);
    assert.equal(matches({ zone: 'a' }, {}, { matchExpressions: [] }), false);
  });

  it('whatever its name is, since that is not given', () =>
    assert.equal(
      matches({}, { matchFields: [{ key: 'metadata.name', operator: 'In', values: ['x'] }] }),
      true,
    ));

  type Row = readonly [string, readonly string[], string | undefined, boolean];
  const operators: readonly Row[] = [
    ['In', ['1', '2'], '2', true],
    ['In', ['1'], undefined, false],
    ['NotIn', ['1'], '2', true],
    ['NotIn', ['1'], '1', false],
    ['NotIn', ['1'], undefined, true],
    ['Unknown', ['1'], '1', false],
    ['Exists', [], '', true],
    ['Exists', [], undefined, false],
    ['DoesNotExist', [], undefined, true],
    ['DoesNotExist', [], '1', false],
    ['Gt', ['5'], '6', true],
    ['Gt', ['5'], '5', false],
    ['Gt', ['-1'], '+0', true],
    ['Gt', ['9223372036854775806'], '9223372036854775807', true],
    ['Gt', ['5'], '9223372036854775808', false],
    ['Gt', ['5'], 'six', false],
    ['Gt', ['5'], undefined, false],
    ['Lt', ['5'], '4', true],
    ['Lt', ['5'], '5', false],
    ['Lt', ['x'], '5', false],
  ];
  for (const [operator, values, value, expected] of operators)
    it(`${expected ? '' : 'not '}by ${operator} [${values.join()}] if its label is ${value}`, () =>
      assert.equal(
        matches(value === undefined ? {} : { key: value }, expression('key', operator, ...values)),
        expected,
      ));

  it('not by labels that every object of JavaScript has', () =>
    assert.equal(matches({}, expression('constructor', 'Exists')), false));
});
