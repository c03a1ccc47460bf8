import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { PROVISIONING_PAUSE } from '#src/election/lease-view.ts';
import { Waits, type WaitsOptions } from '#src/ingest/waits.ts';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { KubeObject } from '#src/kube/objects.ts';
import { apiVersionOf, type Resource, secrets, snapshots } from '#src/kube/resources.ts';
import { JOB_KINDS, type JobKey } from '#src/queue/contract.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { readWaiting } from '#src/queue/status.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import type { WaitCondition } from '#src/rules/rule.ts';
import { claimKey, QueueBench, type TestProducer, volumeKey } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { installCrds } from '../harness/snapshot-crds.ts';
import { until } from '../harness/until.ts';
import { aClass } from '../volumes/builders.ts';

const CLASS = { resource: 'storageclasses', name: 'fast' };
const LOGIN = { resource: secrets.plural, namespace: 'default', name: 'login' };
const done: Outcome = { kind: 'done' };

describe('keys that wait for objects', () => {
  let redis: TestRedis;
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let bench: QueueBench;
  let producer: TestProducer;
  let driver = '';
  let serial = 0;
  let closers: Closers;
  let classVersion = '';
  /** How often each object was read, by its plural. */
  const reads = new Map<string, number>();
  /** Looks that are over. */
  let looks = 0;

  before(async () => {
    redis = await startTestRedis();
    cluster = await openSandboxCluster();
    kube = createKubeClient({ access: cluster.access, userAgent: 'test', log: silentLog });
  });
  after(async () => {
    await kube.close();
    await cluster.close();
    await redis.close();
  });
  beforeEach(() => {
    driver = `w${(serial += 1)}.example`;
    bench = new QueueBench(redis, driver);
    producer = bench.producer();
    closers = new Closers();
    classVersion = '';
    reads.clear();
    looks = 0;
  });
  afterEach(async () => {
    await closers.close();
    await bench.close();
  });

  const waiting = () => readWaiting({ redis: redis.redis, prefix: 'csi', driver });
  /** Enqueues claims, and waits until all keys wait. */
  const untilWaiting = async (...names: readonly string[]): Promise<void> => {
    for (const name of names) producer.ensureQueued(claimKey(name));
    await until(async () => (await waiting()).length === names.length, 'all wait');
  };
  const parked = (...conditions: readonly WaitCondition[]): Outcome => ({
    kind: 'parked',
    reason: 'not there',
    until: conditions,
  });
  /** Counts the looks. */
  const queueOf = (isLeading: () => boolean): WaitsOptions['queue'] => ({
    get isAllowing() {
      looks += 1;
      return isLeading();
    },
    promote: (key) => producer.promote(key),
  });
  const watch = (o: Partial<WaitsOptions> = {}): Waits => {
    const waits = new Waits({
      redis: redis.redis,
      prefix: 'csi',
      driver,
      client: {
        ...kube,
        list(resource, options) {
          reads.set(resource.plural, (reads.get(resource.plural) ?? 0) + 1);
          return kube.list(resource, options);
        },
      },
      queue: queueOf(() => true),
      source: {
        classOf: (name) =>
          classVersion === ''
            ? undefined
            : aClass({ metadata: { name, uid: 'u', resourceVersion: classVersion } }),
      },
      pause: { isNewWorkAllowed: true },
      periodMs: 10,
      log: silentLog,
      metrics: new Registry(),
      ...o,
    });
    closers.add('waits', () => waits.stop());
    return waits;
  };
  /** Resolves when everything has been looked at that is true now. */
  const looked = async (): Promise<void> => {
    const from = looks;
    await until(() => looks >= from + 4, 'two more looks');
  };
  const make = (resource: Resource, name: string): Promise<KubeObject> =>
    kube.create<KubeObject>(resource, 'default', {
      apiVersion: apiVersionOf(resource),
      kind: resource.kind,
      metadata: { name },
    });
  const remove = (resource: Resource, name: string) =>
    kube.delete(resource, { namespace: 'default', name });

  it('of every kind run when their object is there', async () => {
    const keys: readonly JobKey[] = [claimKey('a'), volumeKey('pv')];
    for (const kind of JOB_KINDS)
      bench.consumer(() => (classVersion === '' ? parked({ ...CLASS, seen: '' }) : done), { kind });
    for (const key of keys) producer.ensureQueued(key);
    await until(async () => (await waiting()).length === 2, 'all wait');
    let isLeading = true;
    watch({ queue: queueOf(() => isLeading) });
    await looked();
    assert.equal(bench.runs.length, 2, 'nothing runs while nothing changes');
    isLeading = false;
    classVersion = '7';
    await looked();
    assert.equal(bench.runs.length, 2, 'nothing runs while another ingest leads');
    isLeading = true;
    await until(() => bench.runs.length === 4, 'all ran once more');
    await until(async () => (await waiting()).length === 0, 'none waits');
  });

  it('run when the object changed between their read and the end of their run', async () => {
    bench.consumer(() => {
      const seen = classVersion;
      classVersion = '7';
      return seen === '' ? parked({ ...CLASS, seen }) : done;
    });
    watch();
    producer.ensureQueued(claimKey('a'));
    await until(() => bench.runs.length === 2, 'the second run');
  });

  it('run when a missing secret is created, for which each look asks once', async () => {
    bench.consumer(async () => {
      const found = await kube.get(secrets, LOGIN);
      return found === undefined ? parked({ ...LOGIN, seen: '' }) : done;
    });
    await untilWaiting('a', 'b', 'c');
    let steps = 0;
    watch({ queue: queueOf(() => (steps += 1) > 0) });
    await until(() => (reads.get('secrets') ?? 0) >= 3, 'it was asked for');
    assert.ok((reads.get('secrets') ?? 0) <= steps, 'not for each key');
    assert.equal(bench.runs.length, 3);
    await make(secrets, 'login');
    await until(() => bench.runs.length === 6, 'all ran once more');
    await remove(secrets, 'login');
  });

  it('run when a snapshot is created, even if its kind was not installed', async () => {
    const ref = { namespace: 'default', name: 's' };
    bench.consumer(async () => {
      const found = await kube.get(snapshots, ref).catch(() => undefined);
      return found === undefined ? parked({ resource: snapshots.plural, ...ref, seen: '' }) : done;
    });
    await untilWaiting('a');
    watch();
    await until(() => (reads.get(snapshots.plural) ?? 0) > 1, 'the kind was asked for');
    await installCrds(kube);
    await make(snapshots, 's');
    await until(() => bench.runs.length === 2, 'the second run');
  });

  it('run when nodes change, which are watched only meanwhile', async () => {
    bench.consumer(() =>
      bench.runs.length === 1 ? parked({ resource: 'nodes', name: '*', seen: 'of no node' }) : done,
    );
    watch();
    await looked();
    assert.deepEqual([...reads.keys()], [], 'no key waits for nodes');
    producer.ensureQueued(claimKey('a'));
    await until(() => bench.runs.length === 2, 'it ran: the nodes are others than it has seen');
    assert.deepEqual([...reads.keys()].toSorted(), ['csinodes', 'nodes']);
  });

  it('run when the provisioning pause ends', async () => {
    const pause = { isNewWorkAllowed: false };
    bench.consumer(() => (pause.isNewWorkAllowed ? done : parked(PROVISIONING_PAUSE)));
    await untilWaiting('a');
    watch({ pause });
    await looked();
    assert.equal(bench.runs.length, 1);
    pause.isNewWorkAllowed = true;
    await until(() => bench.runs.length === 2, 'the second run');
  });

  it('do not run for an object that they wait for no longer', async () => {
    const outcomes: readonly Outcome[] = [
      parked({ ...CLASS, seen: '' }),
      { kind: 'retry', reason: 'pool is full', minDelayMs: 60_000 },
    ];
    bench.consumer(() => outcomes[bench.runs.length - 1] ?? done);
    await untilWaiting('a');
    producer.enqueueNow(claimKey('a'));
    await until(async () => (await waiting()).length === 0, 'it waits for nothing');
    classVersion = '9';
    watch();
    await looked();
    assert.equal(bench.runs.length, 2);
  });

  it('cost one request in five minutes where the object may not be read', async () => {
    bench.consumer(() => parked({ ...LOGIN, seen: '' }));
    await untilWaiting('a');
    let asked = 0;
    const refusal = new KubeError({ code: 403, reason: 'Forbidden', serverMessage: 'no' });
    const list = (): Promise<never> => {
      asked += 1;
      return Promise.reject(refusal);
    };
    watch({ client: { ...kube, list } });
    await until(() => asked > 0, 'it was asked for');
    await looked();
    assert.deepEqual([asked, bench.runs.length], [1, 1]);
  });
});
