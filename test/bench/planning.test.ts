import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CASES, plan } from '../../bench/planning-cases.ts';

describe('cases of bench:planning', () => {
  for (const one of CASES) {
    it(`plans a volume: ${one.name}`, async () => {
      assert.equal((await plan(one)).kind, 'create');
    });
  }

  it('resolves secret templates for the call and for every reference in the PV', async () => {
    const templates = CASES.find(({ name }) => name.includes('secrets'));
    assert.ok(templates);
    const made = await plan(templates);
    assert.ok(made.kind === 'create');
    assert.deepEqual(made.secret, { name: 'claim-blue', namespace: 'space' });
    const { csi } = made.volume.spec;
    assert.equal(Object.keys(csi ?? {}).filter((field) => field.endsWith('SecretRef')).length, 5);
  });
});
