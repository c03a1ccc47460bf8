import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { violations, runChaos } from './chaos-run.ts';

/** test:long has every kind of fault. */
describe('npm run chaos', () => {
  it('loses nothing while processes are killed and frozen, and Redis and the API fail', async () => {
    const kinds = ['freeze-jobs', 'hang-api', 'kill-gateway', 'kill-ingest', 'kill-jobs'];
    const run = await runChaos([
      '--backend=sandbox',
      '--seed=4',
      '--minutes=0.25',
      `--faults=${[...kinds, 'kill-redis'].join(',')}`,
      '--lock-duration=5s',
      '--fault-gap=1s',
      '--timeout=1s',
      '--patience=90s',
    ]);
    assert.deepEqual(violations(run), {}, run.report.dir);
    assert.equal(run.code, 0);
    assert.ok(run.report.claims > 10, `${run.report.claims} claims`);
    assert.ok(run.report.volumesMade > 10, `${run.report.volumesMade} volumes`);
    assert.deepEqual(Object.keys(run.report.faults), [...kinds, 'kill-redis']);
  });
});
