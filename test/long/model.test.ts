import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { Worker } from 'node:worker_threads';
import type { Exploration } from '../model/explore.ts';
import { type Protocol, PROTOCOL } from '../model/protocol.ts';
import { ALL_RULES, type Rules } from '../model/record.ts';

/** What the map of all states needs. */
const MEMORY_MB = 10_000;
const { bounds: NO_FAULT } = PROTOCOL;
const EMPTIED: Protocol = { ...PROTOCOL, bounds: { ...NO_FAULT, emptyings: 1 } };
const SERIAL: Protocol = { ...PROTOCOL, doesDriverSerialise: true };
const FAILED_OVER: Protocol = { ...SERIAL, bounds: { ...NO_FAULT, failovers: 1 } };
/** Another provisioner takes the Lease, and one of ours has it again later. */
const CHANGED_OVER: Protocol = { ...SERIAL, bounds: { ...NO_FAULT, changes: 1 } };

async function exploreApart(protocol: Protocol): Promise<Exploration> {
  const worker = new Worker(new URL('../model/explore-worker.js', import.meta.url), {
    workerData: protocol,
    resourceLimits: { maxOldGenerationSizeMb: MEMORY_MB },
  });
  const [exploration] = (await once(worker, 'message')) as [Exploration];
  return exploration;
}

describe('the protocol of the volume record, all interleavings', { timeout: 1_800_000 }, () => {
  for (const { title, protocol, leastStates } of [
    {
      title: 'with a death, an unreachable Redis and a change of policy',
      protocol: { ...PROTOCOL, bounds: { ...NO_FAULT, deaths: 1, flips: 1 } },
      leastStates: 100_000,
    },
    { title: 'when Redis is emptied', protocol: EMPTIED, leastStates: 300_000 },
    {
      title: 'when Redis goes back by any part of its history',
      protocol: FAILED_OVER,
      leastStates: 5_000_000,
    },
    {
      title: 'when another provisioner leads for a while',
      protocol: CHANGED_OVER,
      leastStates: 1_000_000,
    },
    {
      title: 'without exception when sutler is drained before that',
      protocol: { ...CHANGED_OVER, isDrainedFirst: true, isOpenAtChangeExcused: false },
      leastStates: 100_000,
    },
  ])
    it(`holds ${title}`, async (t) => {
      const { states, transitions, depth, finding } = await exploreApart(protocol);
      t.diagnostic(`${states} states, ${transitions} transitions, depth ${depth}`);
      assert.equal(finding, undefined, finding && [finding.what, ...finding.trace].join('\n  '));
      assert.ok(states > leastStates, 'the space is too small to prove anything');
    });
});

describe('the protocol without a record rule, or with half of one', { timeout: 1_800_000 }, () => {
  const cases: readonly {
    readonly title: string;
    readonly protocol: Protocol;
    readonly rules: Partial<Rules>;
    readonly breaks: RegExp;
  }[] = [
    {
      title: '5, resolve: an abandoned call creates the volume again after its deletion',
      protocol: { ...SERIAL, bounds: { ...NO_FAULT, deaths: 1 } },
      rules: { resolve: false, deletionAwaitsLateCalls: false },
      breaks: /\(I3\)/,
    },
    {
      title: '6: a run that read its claim before the loss creates a deleted volume again',
      protocol: EMPTIED,
      rules: { runsEndWithTheDataEpoch: false },
      breaks: /\(I3\)/,
    },
    {
      title: '6: a worker that does not rewrite in time creates a deleted volume again',
      protocol: EMPTIED,
      rules: { areRecordsRewrittenInTime: false },
      breaks: /\(I3\)/,
    },
    {
      title: '9: a PV of a deleted volume hides one that an abandoned call creates',
      protocol: CHANGED_OVER,
      rules: { seenIsNotEnoughAfterOther: false },
      breaks: /\(I1\)/,
    },
  ];
  for (const { title, protocol, rules, breaks } of cases)
    it(title, async (t) => {
      const { finding } = await exploreApart({ ...protocol, rules: { ...ALL_RULES, ...rules } });
      assert.ok(finding !== undefined, 'no counter-example was found');
      t.diagnostic([finding.what, ...finding.trace].join('\n'));
      assert.match(finding.what, breaks);
    });
});
