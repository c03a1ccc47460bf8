import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { violations, runChaos } from './chaos-run.ts';

const KINDS = [
  'flush-redis',
  'hang-api',
  'kill-gateway',
  'kill-ingest',
  'kill-jobs',
  'kill-redis',
  'restore-redis',
];

/** test:long has every kind of fault, in both forms. */
describe('npm run chaos', () => {
  it('loses nothing while processes die, and Redis and the API fail', async () => {
    const run = await runChaos([
      '--backend=sandbox',
      '--seed=1',
      '--minutes=0.25',
      `--faults=${KINDS.join(',')}`,
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
    assert.deepEqual(Object.keys(run.report.faults), KINDS);
  });
});
