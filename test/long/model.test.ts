import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { Worker } from 'node:worker_threads';
import type { Exploration } from '../model/explore.ts';
import { PROTOCOL } from '../model/protocol.ts';

/** What the map of all states needs. */
const MEMORY_MB = 10_000;

describe('the protocol of the volume record, all interleavings', () => {
  it('holds when Redis goes back by any part of its history', { timeout: 1_800_000 }, async (t) => {
    const worker = new Worker(new URL('../model/explore-worker.js', import.meta.url), {
      workerData: { ...PROTOCOL, bounds: { ...PROTOCOL.bounds, failovers: 1 } },
      resourceLimits: { maxOldGenerationSizeMb: MEMORY_MB },
    });
    const [exploration] = (await once(worker, 'message')) as [Exploration];
    const { states, transitions, depth, finding } = exploration;
    t.diagnostic(`${states} states, ${transitions} transitions, depth ${depth}`);
    assert.equal(finding, undefined, finding && [finding.what, ...finding.trace].join('\n  '));
    assert.ok(states > 5_000_000, 'the space is too small to prove anything');
  });
});
