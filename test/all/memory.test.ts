import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { lackOfMemory } from '#src/all/memory.ts';

const MiB = 2 ** 20;

describe('sutler all warns at its start', () => {
  it('of a limit of memory below 128 MiB, and names the field to change', () => {
    const warning = lackOfMemory(64 * MiB) ?? '';
    assert.match(warning, /64 MiB.*resources\.limits\.memory.*128Mi/);
  });

  for (const [title, bytes] of [
    ['a limit of 128 MiB', 128 * MiB],
    ['no limit', 2 ** 64],
    ['a system that does not say', 0],
  ] as const)
    it(`of nothing with ${title}`, () => assert.equal(lackOfMemory(bytes), undefined));
});
