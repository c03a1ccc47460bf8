import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { readStepTimes } from '../../bench/step-times.ts';

const line = (step: string, atMs: number, tookMs: number): string =>
  `${JSON.stringify({ step, atMs, tookMs })}\n`;

describe('the steps of claims that were created one at a time', () => {
  let dir: string;
  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'sutler-steps-'));
    await writeFile(
      join(dir, 'ingest.log'),
      `no JSON\n${line('enqueue', 1001, 2)}${line('enqueue', 2001, 4)}`,
    );
    await writeFile(
      join(dir, 'jobs.log'),
      line('run', 1004, 20) +
        line('kube.get', 1005, 3) +
        line('run', 2008, 20) +
        line('kube.get', 2009, 5),
    );
  });
  after(() => rm(dir, { recursive: true }));

  it('belong to the claim that was under way', async () => {
    const steps = await readStepTimes(dir, [
      { answeredMs: 1000, provisionedMs: 1030 },
      { answeredMs: 2000, provisionedMs: 2040 },
    ]);
    const p99 = Object.fromEntries(steps.map(({ name, p99Ms }) => [name, p99Ms]));
    assert.deepEqual(p99, {
      'answer to the create → ingest has the event': 1,
      'ingest has the event → Redis has the job': 4,
      'Redis has the job → the run begins': 3,
      'own work before kube.get': 1,
      'kube.get': 5,
      'all: answer to the create → a watch shows the PV': 40,
    });
  });
});
