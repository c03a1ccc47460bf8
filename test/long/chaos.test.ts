import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { describe, it } from 'node:test';
import { kindsOf } from '../../chaos/schedule.ts';
import { violations, runChaos } from '../chaos/chaos-run.ts';

/** On the real control plane where KUBEBUILDER_ASSETS is set, else on the sandbox. */
describe('chaos for three minutes', () => {
  for (const [seed, form] of [
    [1, 'distributed'],
    [2, 'drop-in'],
    [3, 'distributed'],
  ] as const) {
    it(`loses nothing: ${form}, seed ${seed}`, { timeout: 600_000 }, async () => {
      const run = await runChaos([`--form=${form}`, `--seed=${seed}`, '--minutes=3']);
      assert.deepEqual(violations(run), {}, run.report.dir);
      assert.equal(run.code, 0);
    });
  }
});

describe('chaos on the sandbox', { timeout: 600_000 }, () => {
  for (const form of ['distributed', 'drop-in'] as const)
    it(`loses nothing under faults of every kind: ${form}`, async () => {
      const run = await runChaos([
        '--backend=sandbox',
        `--form=${form}`,
        // Its schedule has each kind, in so short a time.
        '--seed=1',
        '--minutes=1',
        '--lock-duration=5s',
        '--fault-gap=1500ms',
        '--timeout=1s',
        '--settle-time=1s',
        '--patience=90s',
      ]);
      assert.deepEqual(violations(run), {}, run.report.dir);
      assert.deepEqual(Object.keys(run.report.faults).toSorted(), kindsOf(form).toSorted());
    });

  it('loses nothing while Redis loses all or a part of its data every few seconds', async () => {
    const kinds = ['failover-redis', 'flush-redis', 'kill-redis', 'restore-redis'];
    const run = await runChaos([
      '--backend=sandbox',
      '--seed=2',
      `--faults=${[...kinds, 'kill-ingest', 'kill-jobs'].join(',')}`,
      '--fault-gap=1500ms',
      '--minutes=0.7',
      '--lock-duration=5s',
      // The more calls there are and the longer they take, the more of them are under way then.
      '--claims-per-second=16',
      '--slow-share=0.15',
    ]);
    assert.deepEqual(violations(run), {}, run.report.dir);
    for (const kind of kinds) assert.ok(kind in run.report.faults, kind);
  });

  it('reports leaks where jobs are finished too early', async () => {
    const run = await runChaos([
      '--backend=sandbox',
      '--seed=1',
      '--leaky',
      // After its deadline, the driver still finishes the call. If the claim is deleted meanwhile,
      // only the job and the journal would show that there may be a volume.
      '--faults=kill-jobs',
      '--fault-gap=5s',
      '--slow-share=0.5',
      '--claims-per-second=8',
      '--minutes=0.25',
      '--lock-duration=5s',
      '--timeout=1s',
      '--settle-time=1s',
      '--patience=20s',
    ]);
    assert.equal(run.code, 1);
    assert.ok(run.report.verdict.leaked.length > 0, JSON.stringify(run.report));
    // A failed run keeps its folder.
    await rm(run.report.dir, { recursive: true });
  });
});
