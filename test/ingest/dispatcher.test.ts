import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { type ClaimToPlan, Dispatcher } from '#src/ingest/dispatcher.ts';
import { Journal } from '#src/journal/journal.ts';
import { listJournal } from '#src/journal/list-journal.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { JobKey, KeyToQueue } from '#src/queue/contract.ts';
import { beginTerm } from '#src/queue/history.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { forgetKey, type Leading, type WorkQueue } from '#src/queue/work-queue.ts';
import type { RedisLink } from '#src/redis/connection.ts';
import { silentLog } from '#src/runtime/log.ts';
import { beginLeading } from '../harness/leading.ts';
import { claimKey, openTestWorkQueue, QueueBench, volumeKey } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';
import { aClaim, aClass } from '../volumes/builders.ts';

const DONE: Outcome = { kind: 'done' };

describe('Dispatcher', () => {
  let server: TestRedis;
  let cluster: SandboxCluster;
  let kube: KubeClient, bench: QueueBench;
  let [driver, serial] = ['', 0];
  let link: RedisLink, work: WorkQueue;
  let journal: Journal, dispatcher: Dispatcher;
  let leading: Leading, ticks: NodeJS.Timeout;
  /** The claims that exist, by UID. */
  let claims: Map<string, ClaimToPlan>;
  let again: KeyToQueue[], outdated: number;
  /** Of entries that have left: the claim's UID, and whether its job was still there. */
  let gone: (readonly [uid: string, hadJob: Promise<number>])[];

  const key = claimKey('data');
  const deletion: JobKey = { ...volumeKey('pvc-data'), claimUid: key.uid };
  const place = () => ({ redis: server.redis, prefix: 'csi', driver });
  const root = (kind: JobKey['kind'] = 'claim'): string =>
    queueRoot('csi', queueName(kind, driver));
  const jobOf = ({ kind, uid, claimUid }: JobKey): string => root(kind) + (claimUid ?? uid);
  const hasJob = async (each: JobKey = key): Promise<boolean> =>
    (await server.redis.exists(jobOf(each))) === 1;
  const dataOf = async (each: JobKey = key): Promise<Record<string, unknown>> =>
    JSON.parse((await server.redis.hget(jobOf(each), 'data')) ?? '{}') as Record<string, unknown>;
  const journalPlace = () => ({ driver, lease: driver.replaceAll('.', '-'), namespace: 'default' });
  const hasEntry = async ({ uid }: JobKey = key): Promise<boolean> =>
    (await listJournal(kube, journalPlace())).some((entry) => entry.uid === uid);
  const exist = (each: JobKey, needsNode = false): void => {
    const { uid, namespace, name } = each;
    const claim = aClaim({ metadata: { uid, namespace, name } });
    claims.set(uid, { claim, cls: aClass(), needsNode });
  };
  /** A worker, whose runs end when `release` is called. */
  const startWorker = (kind: 'claim' | 'volume' = 'claim'): (() => void) => {
    let release = (): void => undefined;
    const released = new Promise<void>((resolve) => (release = resolve));
    bench.consumer(
      async () => {
        await released;
        return DONE;
      },
      { kind },
    );
    return release;
  };
  const untilRuns = (each: JobKey = key, count = 1): Promise<void> =>
    until(() => bench.runsOf(each).length === count, `it runs for the ${count}. time`);
  const begin = (): void => dispatcher.begin(leading);
  /** Adds the job of a key. */
  const queue = async (each: KeyToQueue = key): Promise<void> => {
    dispatcher.ensureQueued(each);
    await dispatcher.waitUntilFlushed();
  };
  /** Looks for finished jobs twice, and lets their entries leave. */
  const look = async (): Promise<void> => {
    for (const _ of [1, 2]) {
      await dispatcher.look();
      await journal.tidy();
    }
  };
  const refuse = (verb: 'list' | 'update', code: number): void => {
    const action = { kind: 'status', code } as const;
    cluster.api.faults.inject({ action, plural: 'leases', verb, times: Infinity });
  };

  before(async () => {
    server = await startTestRedis();
    cluster = await openSandboxCluster();
    kube = await cluster.client();
  });
  after(async () => {
    await cluster.close();
    await server.close();
  });
  beforeEach(async () => {
    driver = `d${(serial += 1)}.example`;
    bench = new QueueBench(server, driver);
    claims = new Map();
    again = [];
    gone = [];
    outdated = 0;
    exist(key);
    ({ link, queue: work, leading } = await openTestWorkQueue(server, driver));
    journal = new Journal({
      ...journalPlace(),
      client: kube,
      holder: 'test',
      onGone: (uids) => {
        for (const uid of uids) gone.push([uid, server.redis.exists(jobOf({ ...key, uid }))]);
        dispatcher.entriesGone(uids);
      },
      log: silentLog,
    });
    dispatcher = new Dispatcher({
      queue: work,
      journal,
      claimToPlan: ({ uid }) => Promise.resolve(claims.get(uid)),
      doubtMs: 60_000,
      trouble: () => link.trouble,
      onMayNeedAgain: (each) => again.push(each),
      onOutdated: () => (outdated += 1),
      log: silentLog,
    });
    ticks = setInterval(() => void dispatcher.look().then(() => journal.tidy()), 20);
    await journal.begin(1, () => true);
  });
  afterEach(async () => {
    cluster.api.faults.clear();
    await bench.close();
    await dispatcher.close();
    clearInterval(ticks);
    await work.close();
    link.close();
  });

  it('adds nothing before it has begun, and then what was asked for', async () => {
    await queue();
    assert.deepEqual([await hasJob(), dispatcher.pending], [false, 1]);
    begin();
    await dispatcher.waitUntilFlushed();
    assert.deepEqual([await hasJob(), dispatcher.pending], [true, 0]);
  });

  it('says that it works again after a look, also where no key waits', async (t) => {
    begin();
    const failing = t.mock.method(work, 'finished', () => Promise.reject(new Error('no answer')));
    await until(() => dispatcher.trouble !== undefined, 'a look has failed');
    failing.mock.restore();
    await until(() => dispatcher.trouble === undefined, 'a look has succeeded');
  });

  describe('gives a claim', () => {
    it('its entry in the journal before its job, which names the object with it (J1)', async (t) => {
      begin();
      let hadEntry: Promise<boolean> | undefined;
      const { add } = work;
      t.mock.method(work, 'add', async (...given: Parameters<typeof add>) => {
        hadEntry ??= hasEntry();
        await hadEntry;
        return add.apply(work, given);
      });
      await queue();
      assert.equal(await hadEntry, true);
      const name = `${journalPlace().lease}-journal-0`;
      assert.deepEqual(await dataOf(), { v: 1, ...key, journal: name });
      assert.deepEqual([...dispatcher.entries()], [key], 'it counts as outstanding');
    });

    it('no job while the API server refuses its entry, and says so', async () => {
      begin();
      refuse('update', 500);
      dispatcher.ensureQueued(key);
      await until(() => dispatcher.trouble !== undefined, 'the trouble is told');
      assert.match(dispatcher.trouble ?? '', /^claims get no jobs: .*HTTP 500/);
      assert.equal(await hasJob(), false);
      cluster.api.faults.clear();
      await until(hasJob, 'it has a job');
      await until(() => dispatcher.trouble === undefined, 'the trouble is over');
      assert.equal(await hasEntry(), true);
    });

    it('no job and no entry for a promotion alone, nor if it is gone and has none', async () => {
      begin();
      dispatcher.promote(key);
      await dispatcher.waitUntilFlushed();
      assert.deepEqual([await hasJob(), await hasEntry()], [false, false]);
      claims.clear();
      await queue();
      assert.deepEqual([await hasJob(), await hasEntry()], [false, false]);
    });

    it('a job whose calls of before may be at work, if an earlier leader noted it, gone or not (J3)', async () => {
      await journal.add([claims.get(key.uid) ?? assert.fail()]);
      claims.clear();
      begin();
      await queue();
      const leftMs = Number((await dataOf())['until']) - Date.now();
      assert.ok(leftMs > 0 && leftMs <= 60_000, `${leftMs} ms`);
    });

    it('a job without an entry where sutler works without the journal', async () => {
      refuse('list', 403);
      await journal.begin(2, () => true);
      begin();
      await queue();
      assert.equal((await dataOf())['journal'], '');
    });

    it('one write of the journal for many that come together, and no list', async () => {
      begin();
      const keys = Array.from({ length: 150 }, (_, i) => claimKey(`c${i}`));
      for (const each of keys) exist(each);
      cluster.api.requests.reset();
      for (const each of keys) dispatcher.ensureQueued(each);
      await dispatcher.waitUntilFlushed();
      assert.deepEqual(cluster.api.requests.snapshot(), { 'update leases': 1 });
      const last = claimKey('c149');
      assert.deepEqual([await hasJob(last), await hasEntry(last)], [true, true]);
    });
  });

  describe('lets an entry leave', () => {
    it('after the job is finished, and then removes the job (J2)', async () => {
      begin();
      const release = startWorker();
      dispatcher.ensureQueued(key);
      await untilRuns();
      await look();
      assert.equal(await hasEntry(), true, 'its run is under way');
      release();
      await until(async () => !(await hasEntry()), 'the entry has left');
      const [uid, hadJob] = gone[0] ?? assert.fail();
      assert.deepEqual([uid, await hadJob], [key.uid, 1], 'the job was there until then');
      await until(async () => !(await hasJob()), 'the job is removed');
    });

    it('not while the job waits for another run', async () => {
      begin();
      bench.consumer(() => ({ kind: 'retry', reason: 'full', minDelayMs: 3_600_000 }));
      dispatcher.ensureQueued(key);
      await untilRuns();
      await until(async () => (await server.redis.zcard(`${root()}delayed`)) === 1, 'it waits');
      await look();
      assert.equal(await hasEntry(), true);
    });

    it('not for a job that no worker can read: its claim gets another one', async () => {
      begin();
      await queue();
      await server.redis.hset(jobOf(key), 'data', '{"oops":true}');
      startWorker()();
      await untilRuns();
      assert.ok((bench.runs[0]?.run.facts.until ?? 0) > Date.now(), 'calls may be at work');
    });

    it('that an operator asked to forget, and removes its job', async () => {
      begin();
      bench.consumer(() => ({ kind: 'retry', reason: 'gone', minDelayMs: 3_600_000 }));
      dispatcher.ensureQueued(key);
      await untilRuns();
      await server.redis.hset(forgetKey('csi', driver), key.uid, '{}');
      await until(async () => !(await hasEntry()), 'the entry has left');
      await until(async () => !(await hasJob()), 'the job is removed');
      assert.equal(await server.redis.exists(forgetKey('csi', driver)), 0);
    });
  });

  describe('a deletion', () => {
    it('waits until the claim’s entry has left (J5)', async () => {
      begin();
      const release = startWorker();
      dispatcher.ensureQueued(key);
      await untilRuns();
      await queue(deletion);
      await look();
      assert.equal(await hasJob(deletion), false);
      release();
      await until(() => hasJob(deletion), 'the deletion has a job');
      assert.deepEqual([await hasEntry(), await hasJob()], [false, false]);
    });

    it('is added at once where no entry has its UID, and once more for an event during its run', async () => {
      begin();
      const release = startWorker('volume');
      dispatcher.ensureQueued(deletion);
      await untilRuns(deletion);
      await queue(deletion);
      release();
      await untilRuns(deletion, 2);
      await until(async () => !(await hasJob(deletion)), 'no job is left');
    });
  });

  it('has a claim judged again for an event that came during its run', async () => {
    begin();
    const release = startWorker();
    dispatcher.ensureQueued(key);
    await untilRuns();
    await queue();
    assert.deepEqual(again, []);
    release();
    await until(() => again.length === 1, 'it is judged again');
    assert.deepEqual([again, await hasJob()], [[key], false]);
  });

  it('has a claim judged again for an event that came while its entry was leaving', async () => {
    begin();
    await queue();
    const action = { kind: 'delay', delayMs: 500 } as const;
    cluster.api.faults.inject({ action, plural: 'leases', verb: 'update' });
    startWorker()();
    await until(() => journal.isFinished(key.uid), 'its job is finished');
    dispatcher.ensureQueued(key);
    await until(() => again.length === 1, 'it is judged again');
    assert.equal(await hasEntry(), false);
  });

  describe('a job that only selects a node', () => {
    it('names no journal object, and its claim has no entry', async () => {
      exist(key, true);
      begin();
      await queue();
      assert.deepEqual([(await dataOf())['journal'], await hasEntry()], [undefined, false]);
    });

    it('is followed by one that may call the driver, for an event that came before its end', async () => {
      exist(key, true);
      begin();
      const release = startWorker();
      dispatcher.ensureQueued(key);
      await untilRuns();
      exist(key);
      await queue();
      release();
      await untilRuns(key, 2);
      const { journal: object, until: doubtUntil } = bench.runsOf(key)[1]?.run.facts ?? {};
      assert.notEqual(object, undefined);
      assert.equal(doubtUntil, undefined, 'the job before has called nothing');
    });
  });

  it('keeps requests where another process leads by now, and says that once', async () => {
    begin();
    await beginTerm(place(), { transitions: 2, leader: 'other' }, false);
    dispatcher.ensureQueued(key);
    await until(() => outdated > 0, 'it is told');
    assert.equal(await hasJob(), false);
    leading = await beginLeading(place(), 3);
    begin();
    await dispatcher.waitUntilFlushed();
    assert.deepEqual([await hasJob(), outdated], [true, 1]);
  });
});
