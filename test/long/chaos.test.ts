import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { violations, runChaos } from '../chaos/chaos-run.ts';

/** On the real control plane where KUBEBUILDER_ASSETS is set, else on the sandbox. */
describe('chaos for three minutes', () => {
  for (const seed of [1, 2, 3]) {
    it(`loses nothing with seed ${seed}`, { timeout: 600_000 }, async () => {
      const run = await runChaos([`--seed=${seed}`, '--minutes=3']);
      assert.deepEqual(violations(run), {}, run.report.dir);
      assert.equal(run.code, 0);
    });
  }
});
