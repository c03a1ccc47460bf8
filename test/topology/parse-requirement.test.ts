import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseRequirement, requirementText } from '#src/topology/parse-requirement.ts';

const ZONE_A = { segments: { zone: 'a' } };
const ZONE_B = { segments: { zone: 'b' } };

describe('a requirement that a job keeps', () => {
  it('is read as it was written', () => {
    const requirement = { requisite: [ZONE_A, ZONE_B], preferred: [ZONE_B] };
    assert.deepEqual(parseRequirement(requirementText(requirement)), requirement);
  });

  it('is none where the call had none', () => {
    assert.equal(requirementText(undefined), '');
    assert.equal(parseRequirement(''), undefined);
  });

  it('is none where it would be longer than 8 KiB', () => {
    const many = Array.from({ length: 1_000 }, (_, i) => ({ segments: { zone: `zone-${i}` } }));
    assert.equal(requirementText({ requisite: many, preferred: [] }), '');
  });

  for (const text of [
    '{',
    '[]',
    '{}',
    '{"requisite":[]}',
    '{"requisite":[],"preferred":{}}',
    '{"requisite":["zone"],"preferred":[]}',
    '{"requisite":[{}],"preferred":[]}',
    '{"requisite":[{"segments":{"zone":1}}],"preferred":[]}',
  ])
    it(`is none where it reads ${text}`, () => assert.equal(parseRequirement(text), undefined));
});
