import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { Worker } from 'node:worker_threads';
import type { Exploration } from '../model/explore.ts';
import { type Protocol, PROTOCOL } from '../model/protocol.ts';
import { ALL_RULES } from '../model/record.ts';

/** What the map of all states needs. */
const MEMORY_MB = 10_000;
const EMPTIED: Protocol = { ...PROTOCOL, bounds: { ...PROTOCOL.bounds, emptyings: 1 } };
const SERIAL: Protocol = { ...PROTOCOL, doesDriverSerialise: true };
const FAILED_OVER: Protocol = { ...SERIAL, bounds: { ...PROTOCOL.bounds, failovers: 1 } };
/** Another provisioner takes the Lease, and one of ours has it again later. */
const CHANGED_OVER: Protocol = { ...SERIAL, bounds: { ...PROTOCOL.bounds, changes: 1 } };

async function exploreApart(protocol: Protocol): Promise<Exploration> {
  const worker = new Worker(new URL('../model/explore-worker.js', import.meta.url), {
    workerData: protocol,
    resourceLimits: { maxOldGenerationSizeMb: MEMORY_MB },
  });
  const [exploration] = (await once(worker, 'message')) as [Exploration];
  return exploration;
}

function assertHolds(
  { states, transitions, depth, finding }: Exploration,
  least: number,
  report: (text: string) => void,
): void {
  report(`${states} states, ${transitions} transitions, depth ${depth}`);
  assert.equal(finding, undefined, finding && [finding.what, ...finding.trace].join('\n  '));
  assert.ok(states > least, 'the space is too small to prove anything');
}

describe('the protocol of the volume record, all interleavings', { timeout: 1_800_000 }, () => {
  it('holds when Redis is emptied', async (t) =>
    assertHolds(await exploreApart(EMPTIED), 300_000, (text) => t.diagnostic(text)));

  it('holds when Redis goes back by any part of its history', async (t) =>
    assertHolds(await exploreApart(FAILED_OVER), 5_000_000, (text) => t.diagnostic(text)));

  it('holds when another provisioner leads for a while', async (t) =>
    assertHolds(await exploreApart(CHANGED_OVER), 1_000_000, (text) => t.diagnostic(text)));

  it('9: a PV of a deleted volume hides one that an abandoned call creates', async (t) => {
    const rules = { ...ALL_RULES, seenIsNotEnoughAfterOther: false };
    const { finding } = await exploreApart({ ...CHANGED_OVER, rules });
    assert.ok(finding !== undefined, 'no counter-example was found');
    t.diagnostic([finding.what, ...finding.trace].join('\n'));
    assert.match(finding.what, /\(I1\)/);
  });
});
