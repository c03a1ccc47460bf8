import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as nextTurn, setTimeout as delay } from 'node:timers/promises';
import * as fc from 'fast-check';
import { EventHandler } from '#src/ingest/objects/event-handler.ts';
import { Informers } from '#src/ingest/objects/informers.ts';
import { Resync } from '#src/ingest/resync.ts';
import { createKubeClient } from '#src/kube/client.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { silentLog } from '#src/runtime/log.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { ACTS, ClusterModel, DRIVER } from './cluster-model.ts';
import { EVENT_FAULTS, HostileApi, REQUEST_FAULTS } from './hostile-api.ts';

const RUNS = Number(process.env['HOSTILE_RUNS'] ?? 100);
/** Runs wait for sockets and short back-offs, so some run at once. */
const LANES = 10;
/** A fixed seed, so that every run has the same inputs; a failure prints the smallest input. */
const SEED = 20_261_123;
const SETTLED_WITHIN_MS = 20_000;

const index = fc.nat(2);
const act = fc.record({ what: fc.constantFrom(...ACTS), index, other: index });
const scenario = fc.record({
  before: fc.array(act, { maxLength: 10 }),
  acts: fc.array(
    fc.record({
      act,
      /** What is waited for before the next act. */
      pause: fc.constantFrom('nothing', 'nothing', 'a turn', '3 ms', 'watches'),
    }),
    { maxLength: 40 },
  ),
  faults: fc.record({
    events: fc.array(fc.constantFrom(...EVENT_FAULTS), { maxLength: 20 }),
    requests: fc.array(fc.constantFrom(...REQUEST_FAULTS), { maxLength: 8 }),
  }),
});
type Scenario = typeof scenario extends fc.Arbitrary<infer T> ? T : never;

describe('a hostile stream of events', () => {
  it('ends in the same jobs as a perfect one, after a relist and a resync', async () => {
    const lanes = Array.from({ length: LANES }, (_, lane) =>
      fc.assert(fc.asyncProperty(scenario, play), {
        numRuns: Math.ceil(RUNS / LANES),
        seed: SEED + lane,
      }),
    );
    await Promise.all(lanes);
    const all = [...new Set([...EVENT_FAULTS, ...REQUEST_FAULTS])];
    assert.deepEqual([...happened].toSorted(), all.toSorted());
  });
});

/** The faults that have happened in any run. */
const happened = new Set<string>();

async function play({ before, acts, faults }: Scenario): Promise<void> {
  const model = new ClusterModel();
  for (const each of before) model.apply(each);
  const api = await HostileApi.start(model, faults);
  const client = createKubeClient({ access: api.access, userAgent: 'test', log: silentLog });
  const backoff = { startMs: 2, maxMs: 10 };
  const common = { client, log: silentLog, metrics: new Registry() };
  const source = new Informers({ ...common, backoff });
  const jobs = new Set<string>();
  const enqueue = ({ kind, uid }: JobKey) => void jobs.add(`${kind} ${uid}`);
  const queue = {
    isAllowing: true,
    ensureQueued: enqueue,
    enqueueNow: enqueue,
    promote: enqueue,
  };
  const driver = { name: DRIVER, controllerCapabilities: new Set<string>() };
  const handler = new EventHandler(driver, queue, source, silentLog);
  source.serve(handler, () => undefined);
  /** As a worker would, ends the jobs of objects that need none. */
  const work = (): void => {
    const needed = new Set(model.needed);
    for (const job of jobs) if (!needed.has(job)) jobs.delete(job);
  };
  const outstanding = async (): Promise<readonly string[]> => {
    const keys: string[] = [];
    for await (const { kind, uid } of handler.outstanding()) keys.push(`${kind} ${uid}`);
    return keys.toSorted();
  };
  try {
    await api.untilFollowed(SETTLED_WITHIN_MS);
    for (const { act, pause } of acts) {
      api.apply(act);
      if (pause !== 'nothing') work();
      if (pause === 'a turn') await nextTurn();
      if (pause === '3 ms') await delay(3);
      if (pause === 'watches') await api.untilFollowed(SETTLED_WITHIN_MS);
    }
    api.becomeHonest();
    await api.untilFollowed(SETTLED_WITHIN_MS);
    await untilEqual(outstanding, model.needed);
    work();
    const resync = new Resync({
      outstanding: () => handler.outstanding(),
      entries: () => [],
      queue,
      intervalMs: Infinity,
      clock: systemClock,
      log: silentLog,
    });
    await resync.run('test');
    work();
    assert.deepEqual([...jobs].toSorted(), model.needed);
  } finally {
    for (const fault of api.happened) happened.add(fault);
    await source.stop();
    await client.close();
    await api.close();
  }
}

async function untilEqual(
  actual: () => Promise<readonly string[]>,
  expected: readonly string[],
): Promise<void> {
  const endMs = Date.now() + SETTLED_WITHIN_MS;
  for (;;) {
    const found = await actual();
    if (found.join() === expected.join()) return;
    if (Date.now() > endMs)
      throw new Error(`needed: ${expected.join()}; taken for outstanding: ${found.join()}`);
    await delay(10);
  }
}
