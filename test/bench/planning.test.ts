import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CASES, plan } from '../../bench/planning-cases.ts';

describe('cases of bench:planning', () => {
  for (const one of CASES) {
    it(`plans a volume: ${one.name}`, async () => {
      assert.equal((await plan(one)).kind, 'create');
    });
  }
});
