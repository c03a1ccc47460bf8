import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { violations, runChaos } from './chaos-run.ts';

/** test:long has every kind of fault, for longer. */
describe('npm run chaos', () => {
  const holds = (form: string, kinds: readonly string[]): void => {
    it(`loses nothing while processes die, and Redis and the API fail: ${form}`, async () => {
      const run = await runChaos([
        '--backend=sandbox',
        `--form=${form}`,
        '--seed=1',
        '--minutes=0.25',
        `--faults=${kinds.join(',')}`,
        '--lock-duration=5s',
        '--fault-gap=1s',
        '--timeout=1s',
        '--settle-time=1s',
        '--patience=90s',
      ]);
      assert.deepEqual(violations(run), {}, run.report.dir);
      assert.equal(run.code, 0);
      assert.ok(run.report.claims > 10, `${run.report.claims} claims`);
      assert.ok(run.report.volumesMade > 10, `${run.report.volumesMade} volumes`);
      assert.deepEqual(Object.keys(run.report.faults), kinds);
    });
  };

  const processes = ['kill-gateway', 'kill-ingest', 'kill-jobs'];
  holds('distributed', ['flush-redis', 'hang-api', ...processes, 'kill-redis', 'restore-redis']);
  holds('drop-in', ['flush-redis', 'hang-api', 'kill-container', 'kill-redis']);
});
