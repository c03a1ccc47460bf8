import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { describe, it } from 'node:test';
import { violations, runChaos } from './chaos-run.ts';

// Run together, because both wait most of the time. test:long has every kind of fault.
describe('npm run chaos', { concurrency: true }, () => {
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

  it('reports leaks where jobs open no volume records', async () => {
    const run = await runChaos([
      '--backend=sandbox',
      '--seed=1',
      '--leaky',
      // After a kill, the driver still finishes the call. If the claim is deleted meanwhile, only a
      // record would show that there may be a volume.
      '--faults=kill-jobs',
      '--fault-gap=2s',
      '--claims-per-second=8',
      '--minutes=0.25',
      '--lock-duration=5s',
      '--timeout=1s',
      '--patience=2s',
    ]);
    assert.equal(run.code, 1);
    assert.ok(run.report.verdict.leaked.length > 0, JSON.stringify(run.report));
    // A failed run keeps its folder.
    await rm(run.report.dir, { recursive: true });
  });
});
