import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { DemandWatch } from '#src/ingest/dependencies/demand-watch.ts';
import {
  DependencyWatcher,
  type DependencyWatcherOptions,
} from '#src/ingest/dependencies/dependency-watcher.ts';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import type { KubeObject } from '#src/kube/objects.ts';
import { apiVersionOf, type Resource, secrets, snapshots } from '#src/kube/resources.ts';
import { JOB_KINDS, type JobKey, type JobKind } from '#src/queue/contract.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { DependencyIndex, objectId } from '#src/queue/dependency-index.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { claimKey, QueueBench, sleep, snapshotKey, volumeKey } from '../../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../../harness/redis.ts';
import { openSandboxCluster, type SandboxCluster } from '../../harness/sandbox-cluster.ts';
import { installCrds } from '../../harness/snapshot-crds.ts';
import { until } from '../../harness/until.ts';

/** Keys of capacity wait for no object. */
const KINDS = JOB_KINDS.filter((kind) => kind !== 'capacity');

const CLASS = { resource: 'storageclasses', name: 'fast' };
const ID = objectId(CLASS);
const done: Outcome = { kind: 'done' };

describe('dependency watcher', () => {
  let redis: TestRedis;
  let bench: QueueBench;
  let driver = 'w0.example';
  let serial = 0;
  let closers: Closers;
  /** The versions in the leader's caches. */
  const versions = new Map<string, string>();
  const versionOf = (object: string): string => versions.get(object) ?? '';
  const index = (): DependencyIndex =>
    new DependencyIndex({ redis: redis.redis, prefix: 'csi', driver });
  /** The groups of keys that wait. */
  const groups = async () => (await index().read(undefined))?.groups;
  const delayed = (kind: JobKind = 'claim'): Promise<number> =>
    redis.redis.zcard(`${queueRoot('csi', queueName(kind, driver))}delayed`);
  const parked = (seen = ''): Outcome => ({
    kind: 'parked',
    reason: 'not there',
    until: [{ ...CLASS, seen }],
  });

  /** So long that no rescan happens during a test. */
  const SLOW = { periodMs: 2_000 };
  const watch = (o: Partial<DependencyWatcherOptions> = {}): DependencyWatcher => {
    const started = new DependencyWatcher({
      index: index(),
      sources: [{ versionOf }],
      isLeading: () => true,
      driver,
      clock: systemClock,
      log: silentLog,
      metrics: new Registry(),
      periodMs: 50,
      ...o,
    });
    closers.add('watch', () => started.stop());
    return started;
  };

  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(() => {
    serial += 1;
    driver = `w${serial}.example`;
    bench = new QueueBench(redis, driver);
    closers = new Closers();
    versions.clear();
  });
  afterEach(async () => {
    await closers.close();
    await bench.close();
  });

  it('promotes keys of every kind when the object that they wait for is added', async () => {
    const keys: readonly JobKey[] = [
      claimKey('a'),
      claimKey('b', 'other'),
      volumeKey('pv'),
      snapshotKey('s'),
    ];
    const run = ({ uid }: JobKey): Outcome => (versions.has(ID) || uid === '' ? done : parked());
    for (const kind of KINDS) bench.consumer(run, { kind });
    let polls = 0;
    const source = { versionOf, follow: () => (polls += 1) };
    const watching = watch({ ...SLOW, sources: [source] });
    const producer = bench.producer();
    for (const key of keys) producer.ensureQueued(key);
    const waiting = (): Promise<number[]> => Promise.all(KINDS.map((kind) => delayed(kind)));
    await until(async () => (await waiting()).join() === '2,1,1', 'all wait');
    const from = polls;
    await until(() => polls >= from + 2, 'it has seen all of them wait');
    await sleep(200);
    assert.equal(bench.runs.length, 4, 'nothing ran while nothing changed');
    versions.set(ID, '7');
    watching.changed(ID);
    await until(() => bench.runs.length === 8, 'all ran once more');
    await until(
      async () =>
        (await redis.redis.keys(`{csi}:waits:${driver}*`)).join() === `{csi}:waits:${driver}#`,
      'no key is listed',
    );
  });

  for (const which of ['first', 'second'] as const) {
    it(`promotes a key that waits for two objects when the ${which} one changes`, async () => {
      const both = ['first', 'second'].map((name) => ({
        resource: 'storageclasses',
        name,
        seen: '',
      }));
      const changes = `storageclasses//${which}`;
      bench.consumer(() =>
        versions.has(changes) ? done : { kind: 'parked', reason: 'neither is there', until: both },
      );
      const watching = watch(SLOW);
      bench.producer().ensureQueued(claimKey('a'));
      await until(async () => (await delayed()) === 1, 'it waits');
      assert.equal((await groups())?.length, 2);
      versions.set(changes, '7');
      watching.changed(changes);
      await until(() => bench.runs.length === 2, 'the second run');
      await until(async () => (await groups())?.length === 0, 'no key is listed');
    });
  }

  it('finds a change between a run’s read and its parking', async () => {
    bench.consumer(async () => {
      const seen = versions.get(ID) ?? '';
      if (seen !== '') return done;
      versions.set(ID, '7');
      watching.changed(ID);
      await sleep(150);
      return parked(seen);
    });
    const watching = watch(SLOW);
    bench.producer().ensureQueued(claimKey('a'));
    await until(() => bench.runs.length === 2, 'the second run');
  });

  it('finds a change from the time without a leader when a new leader starts', async () => {
    bench.consumer(() => (versions.get(ID) === '8' ? done : parked(versions.get(ID))));
    versions.set(ID, '7');
    const first = watch();
    bench.producer().ensureQueued(claimKey('a'));
    await until(async () => (await delayed()) === 1, 'it waits');
    await first.stop();
    versions.set(ID, '8');
    await sleep(100);
    assert.equal(bench.runs.length, 1);
    watch(SLOW);
    await until(() => bench.runs.length === 2, 'the second run');
  });

  it('promotes a key less and less often if its runs see another version', async () => {
    let nowMs = 0;
    let polls = 0;
    const opened = index();
    const counted: DependencyWatcherOptions['index'] = {
      read(version) {
        polls += 1;
        return opened.read(version);
      },
      promote: (group) => opened.promote(group),
    };
    const afterPolls = async (): Promise<void> => {
      const from = polls;
      await until(() => polls >= from + 8, 'it has polled a few times');
      await until(async () => (await delayed()) === 1, 'it waits');
    };
    bench.consumer(() => parked('6'));
    versions.set(ID, '7');
    watch({
      index: counted,
      clock: {
        nowMs: () => nowMs,
        sleep: (ms, signal) => systemClock.sleep(Math.min(ms, 10), signal),
      },
    });
    bench.producer().ensureQueued(claimKey('a'));
    await until(() => bench.runs.length === 2, 'it is promoted once');
    await afterPolls();
    assert.equal(bench.runs.length, 2);
    nowMs = 1_000;
    await until(() => bench.runs.length === 3, 'it is promoted again');
    nowMs = 2_000;
    await afterPolls();
    assert.equal(bench.runs.length, 3);
    nowMs = 3_000;
    await until(() => bench.runs.length === 4, 'it is promoted once more');
    versions.set(ID, '8');
    await until(() => bench.runs.length === 5, 'a change ends the pause');
  });

  it('promotes nothing while another ingest leads, nor for an unchanged object', async () => {
    bench.consumer(() => parked(versions.get(ID)));
    versions.set(ID, '7');
    let leads = false;
    const watching = watch({ isLeading: () => leads });
    bench.producer().ensureQueued(claimKey('a'));
    await until(async () => (await delayed()) === 1, 'it waits');
    versions.set(ID, '8');
    watching.changed(ID);
    await sleep(150);
    assert.equal(bench.runs.length, 1);
    versions.set(ID, '7');
    leads = true;
    watching.changed(ID);
    await sleep(200);
    assert.equal(bench.runs.length, 1);
  });

  it('removes the wait condition when the next run ends with another outcome', async () => {
    const outcomes: readonly Outcome[] = [
      parked(),
      { kind: 'retry', reason: 'pool is full', minDelayMs: 60_000 },
    ];
    bench.consumer(() => outcomes[bench.runs.length - 1] ?? done);
    const producer = bench.producer();
    producer.ensureQueued(claimKey('a'));
    await until(async () => (await groups())?.length === 1, 'it is listed');
    producer.enqueueNow(claimKey('a'));
    await until(async () => bench.runs.length === 2 && (await delayed()) === 1, 'it failed');
    assert.deepEqual(await groups(), []);
    versions.set(ID, '9');
    watch();
    await sleep(200);
    assert.equal(bench.runs.length, 2, 'an object that it no longer waits for does not promote it');
  });

  it('leaves keys delayed through restarts of workers, resyncs and changes of other objects', async () => {
    const keys = Array.from({ length: 20 }, (_, i) => claimKey(`c${i}`));
    const first = bench.consumer(() => parked());
    const watching = watch();
    const producer = bench.producer();
    for (const key of keys) producer.ensureQueued(key);
    await until(async () => (await delayed()) === 20, 'all wait');
    await first.close(1000);
    bench.consumer(() => parked());
    watch();
    for (const key of keys) producer.ensureQueued(key);
    versions.set('storageclasses//other', '1');
    watching.changed('storageclasses//other');
    await producer.waitUntilFlushed();
    await sleep(1200);
    assert.equal(bench.runs.length, 20);
    assert.equal(await delayed(), 20);
    versions.set(ID, '1');
    watching.changed(ID);
    await until(() => bench.runs.length >= 40, 'all are promoted after all that');
  });

  it('promotes two thousand keys of one object, each once', async () => {
    const count = 2000;
    // On a busy machine a short lock would expire, and its job run once more.
    bench.consumer(() => (versions.has(ID) ? done : parked()), {
      concurrency: 100,
      lockMs: 60_000,
    });
    const watching = watch();
    const producer = bench.producer();
    for (let i = 0; i < count; i += 1) producer.ensureQueued(claimKey(`c${i}`, `ns${i % 10}`));
    await until(async () => (await delayed()) === count, 'all wait', 60_000);
    const before = await redis.commands();
    versions.set(ID, '1');
    watching.changed(ID);
    // The leader removes finished jobs, so that they can't be counted.
    const active = `${queueRoot('csi', queueName('claim', driver))}active`;
    await until(
      async () => bench.runs.length === 2 * count && (await redis.redis.llen(active)) === 0,
      'all ran, and their runs have ended',
      60_000,
    );
    const after_ = await redis.commands();
    assert.ok((after_['hscan'] ?? 0) - (before['hscan'] ?? 0) < 20, 'in few scripts');
    assert.deepEqual(bench.doubles, []);
  });

  it('keeps no wait list in Redis while no key is parked', async () => {
    bench.consumer(() => done);
    const producer = bench.producer();
    producer.ensureQueued(claimKey('a'));
    await until(() => bench.runs.length === 1, 'it ran');
    assert.deepEqual(await redis.redis.keys(`{csi}:waits:${driver}*`), []);
    assert.deepEqual(await redis.redis.keys(`{csi}:status:${driver}*`), []);
  });

  describe('with objects of the API server', () => {
    let cluster: SandboxCluster;
    let kube: KubeClient;
    let demand: DemandWatch;
    let lists = 0;

    beforeEach(async () => {
      cluster = await openSandboxCluster();
      closers.add('cluster', () => cluster.close());
      const { access } = cluster;
      kube = createKubeClient({ access, userAgent: 'test', log: silentLog });
      closers.add('client', () => kube.close());
      let waitWatch: DependencyWatcher | undefined;
      lists = 0;
      demand = new DemandWatch({
        client: {
          ...kube,
          listItems(...args) {
            lists += 1;
            return kube.listItems(...args);
          },
        },
        driver,
        watchSecrets: true,
        onChange: (id) => waitWatch?.changed(id),
        clock: systemClock,
        log: silentLog,
      });
      closers.add('watch on demand', () => demand.stop());
      waitWatch = watch({
        periodMs: 1_000,
        sources: [demand],
      });
    });

    /** A run that parks while the object does not exist. */
    const parkWithout =
      (resource: Resource, ref: { readonly namespace: string; readonly name: string }) =>
      async (): Promise<Outcome> => {
        const found = await kube.get<KubeObject>(resource, ref).catch(() => undefined);
        return found === undefined
          ? {
              kind: 'parked',
              reason: 'not there',
              until: [{ resource: resource.plural, ...ref, seen: '' }],
            }
          : done;
      };
    const make = (resource: Resource, name: string): Promise<KubeObject> =>
      kube.create<KubeObject>(resource, 'default', {
        apiVersion: apiVersionOf(resource),
        kind: resource.kind,
        metadata: { name },
      });

    it('promotes a key when a missing secret is created, and ends that watch', async () => {
      bench.consumer(parkWithout(secrets, { namespace: 'default', name: 'login' }));
      bench.producer().ensureQueued(claimKey('a'));
      const object = objectId({ resource: secrets.plural, namespace: 'default', name: 'login' });
      await until(() => demand.versionOf(object) === '', 'the secret is watched');
      await make(secrets, 'other');
      await sleep(150);
      assert.equal(bench.runs.length, 1, 'another secret promotes nothing');
      await make(secrets, 'login');
      await until(() => bench.runs.length === 2, 'the second run');
      await until(() => demand.versionOf(object) === undefined, 'it is not watched any more');
    });

    it('promotes a key when the snapshot is created, even if its CRD was missing', async () => {
      bench.consumer(parkWithout(snapshots, { namespace: 'default', name: 's' }));
      bench.producer().ensureQueued(claimKey('a'));
      await until(async () => (await delayed()) === 1, 'it waits');
      await until(() => lists > 0, 'the kind was listed');
      await installCrds(kube);
      await until(
        () =>
          demand.versionOf(
            objectId({ resource: snapshots.plural, namespace: 'default', name: 's' }),
          ) === '',
        'it is watched',
      );
      await make(snapshots, 'other');
      await sleep(150);
      assert.equal(bench.runs.length, 1, 'another snapshot promotes nothing');
      await make(snapshots, 's');
      await until(() => bench.runs.length === 2, 'the second run');
    });
  });
});
