import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { describe, it } from 'node:test';
import { kindsOf } from '../../chaos/schedule.ts';
import { violations, runChaos } from '../chaos/chaos-run.ts';

const QUICK = ['--backend=sandbox', '--lock-duration=5s', '--timeout=1s', '--settle-time=1s'];

describe('npm run chaos', { timeout: 600_000 }, () => {
  for (const form of ['distributed', 'drop-in'] as const)
    it(`loses nothing under faults of every kind: ${form}`, async () => {
      const run = await runChaos([
        ...QUICK,
        `--form=${form}`,
        // Its schedule has each kind, in so short a time.
        '--seed=1',
        '--minutes=1',
        '--fault-gap=1500ms',
        '--patience=90s',
      ]);
      assert.deepEqual(violations(run), {}, run.report.dir);
      assert.deepEqual(Object.keys(run.report.faults).toSorted(), kindsOf(form).toSorted());
    });

  it('reports leaks where jobs are finished too early', async () => {
    const run = await runChaos([
      ...QUICK,
      '--seed=1',
      '--leaky',
      // After its deadline, the driver still finishes the call. If the claim is deleted meanwhile,
      // only the job and the journal would show that there may be a volume.
      '--faults=kill-jobs',
      '--fault-gap=5s',
      '--slow-share=0.5',
      '--claims-per-second=8',
      '--minutes=0.25',
      '--patience=20s',
    ]);
    assert.equal(run.code, 1);
    assert.ok(run.report.verdict.leaked.length > 0, JSON.stringify(run.report));
    // A failed run keeps its folder.
    await rm(run.report.dir, { recursive: true });
  });
});
