import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import * as fc from 'fast-check';
import { WebhookSource } from '#src/ingest/notices/webhook-source.ts';
import type { ChangeNotice } from '#src/webhooks/notices.ts';
import { LookQueue } from '#src/ingest/notices/look-queue.ts';
import { PacedLists } from '#src/ingest/notices/paced-lists.ts';
import { EventHandler } from '#src/ingest/objects/event-handler.ts';
import { ServedDrivers } from '#src/ingest/objects/object-source.ts';
import { Resync } from '#src/ingest/resync.ts';
import { createKubeClient } from '#src/kube/client.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { ACTS, ClusterModel, DRIVER, type ModelChange } from './cluster-model.ts';
import { HostileApi } from './hostile-api.ts';

const RUNS = Number(process.env['HOSTILE_RUNS'] ?? 50);
/** Runs wait for sockets, so some run at once. */
const LANES = 10;
/** A fixed seed, so that every run has the same inputs; a failure prints the smallest input. */
const SEED = 20_261_124;

const FAULTS = ['none', 'lost', 'doubled', 'after-the-next', 'early', 'of-no-object'] as const;

const index = fc.nat(2);
const act = fc.record({ what: fc.constantFrom(...ACTS), index, other: index });
const scenario = fc.record({
  before: fc.array(act, { maxLength: 10 }),
  acts: fc.array(
    fc.record({ act, fault: fc.constantFrom(...FAULTS), pauseMs: fc.constantFrom(0, 0, 3) }),
    { maxLength: 40 },
  ),
});
type Scenario = typeof scenario extends fc.Arbitrary<infer T> ? T : never;

describe('hostile notices', () => {
  it('end in the same jobs as perfect ones, after a resync', async () => {
    const lanes = Array.from({ length: LANES }, (_, lane) =>
      fc.assert(fc.asyncProperty(scenario, play), {
        numRuns: Math.ceil(RUNS / LANES),
        seed: SEED + lane,
      }),
    );
    await Promise.all(lanes);
  });
});

async function play({ before, acts }: Scenario): Promise<void> {
  const model = new ClusterModel();
  for (const each of before) model.apply(each);
  const api = await HostileApi.start(model, { events: [], requests: [] });
  const ingest = openIngest(api, model);
  const { source, looks, objects, handler, queue } = ingest;
  const notice = notifier((each) => looks.add(each));
  try {
    await objects.waitForSync(AbortSignal.timeout(20_000));
    for (const { act, fault, pauseMs } of acts) {
      notice(api.apply(act), fault);
      if (pauseMs === 0) continue;
      ingest.work();
      await delay(pauseMs);
    }
    const outstanding = () => handler.outstanding(source);
    const entries = () => [];
    const common = { outstanding, entries, queue, clock: systemClock, log: silentLog };
    await new Resync(common).run('test');
    ingest.work();
    assert.deepEqual(ingest.jobs, model.needed);
  } finally {
    looks.stop();
    objects.stop();
    await source.stop();
    await ingest.close();
    await api.close();
  }
}

/** The parts of ingest that look at objects, and a queue whose jobs end when `work` is called. */
function openIngest(api: HostileApi, model: ClusterModel) {
  const client = createKubeClient({ access: api.access, userAgent: 'test', log: silentLog });
  const common = { client, clock: systemClock, log: silentLog, metrics: new Registry() };
  const lists = new PacedLists({ client, clock: systemClock, log: silentLog });
  const waitUntilReading = () => Promise.resolve();
  const onVolume = () => undefined;
  const drivers = new ServedDrivers();
  const source = new WebhookSource({ ...common, lists, drivers, waitUntilReading, onVolume });
  const looks = new LookQueue({ ...common, onLook: (look) => source.looked(look) });
  const queued = new Set<string>();
  const enqueue = ({ kind, uid }: JobKey) => void queued.add(`${kind} ${uid}`);
  const queue = {
    isAllowing: true,
    ensureQueued: enqueue,
    enqueueNow: enqueue,
    promote: enqueue,
  };
  const driver = { name: DRIVER, controllerCapabilities: new Set<string>() };
  const handler = new EventHandler({ driver, queue, lookups: source, log: silentLog });
  return {
    source,
    looks,
    handler,
    queue,
    objects: source.serve({ handler }),
    get jobs() {
      return [...queued].toSorted();
    },
    /** As a worker would, ends the jobs of objects that need none. */
    work(): void {
      const needed = new Set(model.needed);
      for (const job of queued) if (!needed.has(job)) queued.delete(job);
    },
    close: () => client.close(),
  };
}

/** Sends a notice of each change, as its fault says. */
function notifier(
  send: (notice: ChangeNotice) => void,
): (change: ModelChange | undefined, fault: (typeof FAULTS)[number]) => void {
  let held: ChangeNotice[] = [];
  return (change, fault) => {
    if (change === undefined || change.plural === 'storageclasses') return;
    const { namespace = '', name } = change.object.metadata;
    const notice: ChangeNotice = {
      resource: change.plural,
      namespace,
      name,
      isEarly: fault === 'early',
    };
    const late = held;
    held = fault === 'after-the-next' ? [notice] : [];
    if (fault === 'of-no-object') send({ ...notice, name: 'never-was' });
    if (fault !== 'lost' && fault !== 'after-the-next') send(notice);
    if (fault === 'doubled') send(notice);
    for (const each of late) send(each);
  };
}
