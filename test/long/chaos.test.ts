import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { describe, it } from 'node:test';
import { faultKinds } from '../../chaos/schedule.ts';
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

describe('chaos on the sandbox', { timeout: 600_000 }, () => {
  it('loses nothing under faults of every kind', async () => {
    const run = await runChaos([
      '--backend=sandbox',
      // Its schedule has each kind, in so short a time.
      '--seed=4',
      '--minutes=0.67',
      '--lock-duration=5s',
      '--fault-gap=1500ms',
      '--timeout=1s',
      '--patience=90s',
    ]);
    assert.deepEqual(violations(run), {}, run.report.dir);
    assert.deepEqual(
      Object.keys(run.report.faults).toSorted(),
      Object.keys(faultKinds)
        .filter((kind) => kind !== 'flush-redis')
        .toSorted(),
    );
  });

  it('loses nothing in failovers of Redis that lose its latest data', async () => {
    const run = await runChaos([
      '--backend=sandbox',
      // Some of its losses are shorter than the leader's heartbeat.
      '--seed=2',
      '--faults=failover-redis',
      '--fault-gap=4s',
      '--minutes=0.4',
      // The more calls there are and the longer they take, the more of them are under way in a
      // failover. A larger share would have a few claims meet only slow calls, whose answers are
      // polled for less and less often.
      '--claims-per-second=16',
      '--slow-share=0.15',
    ]);
    assert.deepEqual(violations(run), {}, run.report.dir);
    const { losses } = run.report;
    assert.ok(losses.length > 3 && losses.every(({ keys }) => keys > 0), JSON.stringify(losses));
    assert.ok(
      losses.some(({ forgotten }) => forgotten.length > 0),
      JSON.stringify(losses),
    );
  });

  it('loses nothing with a frozen API server and wrong clocks', async () => {
    const kinds = ['advance-clock', 'delay-clock', 'freeze-api'];
    const run = await runChaos([
      '--backend=sandbox',
      '--seed=1',
      '--minutes=0.5',
      `--faults=${kinds.join(',')}`,
      '--fault-gap=2s',
      '--timeout=1s',
      '--patience=90s',
    ]);
    assert.deepEqual(violations(run), {}, run.report.dir);
    assert.deepEqual(Object.keys(run.report.faults), kinds);
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
