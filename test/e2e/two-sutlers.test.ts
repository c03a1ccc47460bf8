import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, Event, Lease, Volume } from '#src/kube/objects.ts';
import { claims, classes, events, leases, volumes } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import { startSampleDriver } from '../../sandbox/driver/server.ts';
import { DropInBed } from '../harness/drop-in-bed.ts';
import { type SutlerProcess as DropIn, startDropIn } from '../harness/program.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import type { Running } from '../harness/run-main.ts';
import { runSutler } from '../harness/run-sutler.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

/** A drop-in, which is killed. */
const A = 'a.csi.example';
/** Separate processes, whose driver goes away. */
const B = DRIVER;
/** A drop-in whose driver refuses, does not answer, or calls the request infeasible. */
const C = 'c.csi.example';
const OWNERS = { a: A, b: B, c: C } as const;
type Owner = keyof typeof OWNERS;
const TIMES = ['--timeout=1s', '--settle-time=1s'];

/** Sutlers of three drivers in one cluster, in one namespace. */
describe('a drop-in, a distributed sutler and a failing one in one cluster', () => {
  const closers = new Closers();
  const finalizers = new Set<string>();
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let bedOfA: DropInBed;
  let bedOfB: ProcessBed;
  let a: DropIn;
  let ingestOfB: Running;
  let jobsOfB: Running;
  let c: DropIn;

  before(async () => {
    cluster = await openSandboxCluster({ binder: true });
    closers.add('cluster', () => cluster.close());
    const { kubeconfig } = cluster;
    kube = await cluster.client();
    bedOfA = await DropInBed.open({
      kubeconfig,
      namespace: 'default',
      driverName: A,
      driverDelayMs: 300,
    });
    closers.add('A', async () => assert.deepEqual(await bedOfA.close(), []));
    const shared = { ...cluster, close: () => Promise.resolve() };
    bedOfB = await ProcessBed.open({
      flags: TIMES,
      openCluster: () => Promise.resolve(shared),
    });
    closers.add('B', () => bedOfB.close());
    a = await bedOfA.start(TIMES);
    ingestOfB = await bedOfB.startIngest();
    jobsOfB = await bedOfB.startJobs();
    c = await startC();
    const watch = setInterval(() => void noteFinalizers(), 20);
    closers.add('watch', () => clearInterval(watch));
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  async function startC(): Promise<DropIn> {
    const folder = await mkdtemp(join(tmpdir(), 'sutler-c-'));
    closers.add('folder of C', () => rm(folder, { recursive: true, force: true }));
    let calls = 0;
    const driver = await startSampleDriver({
      socket: join(folder, 'csi.sock'),
      dataDir: join(folder, 'volumes'),
      name: C,
      onCall: ({ method, signal }) => {
        if (method !== 'CreateVolume') return undefined;
        calls += 1;
        if (calls % 3 === 0)
          throw new DriverStatus(Code.ResourceExhausted, 'the pool of C is full');
        if (calls % 3 === 1) throw new DriverStatus(Code.InvalidArgument, 'C can’t make that');
        return new Promise((_, reject) => {
          const end = () => reject(new DriverStatus(Code.Canceled, 'the caller is gone'));
          signal.addEventListener('abort', end);
        });
      },
    });
    closers.add('driver of C', () => driver.close());
    await kube.create(classes, undefined, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'StorageClass',
      metadata: { name: 'c' },
      provisioner: C,
    });
    const started = await startDropIn({
      args: [`--kubeconfig=${cluster.kubeconfig}`, ...TIMES, '--retry-interval-start=200ms'],
      socket: driver.socket,
      namespace: 'default',
      env: { TMPDIR: folder, HOSTNAME: 'container-c' },
    });
    closers.add('C', started.stop);
    return started;
  }

  async function noteFinalizers(): Promise<void> {
    const { items } = await kube.list<Claim>(claims, {}).catch(() => ({ items: [] }));
    for (const { metadata } of items)
      for (const each of metadata.finalizers ?? []) finalizers.add(each);
  }

  const classOf = (owner: Owner): string => ({ a: bedOfA.className, b: 'sample', c: 'c' })[owner];
  const create = (owner: Owner, name: string): Promise<Claim> =>
    kube.create<Claim>(claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name: `of-${owner}-${name}`, namespace: 'default' },
      spec: {
        storageClassName: classOf(owner),
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Mi' } },
      },
    });
  const remove = (name: string) => kube.delete(claims, { namespace: 'default', name });
  const isBound = (name: string): Promise<boolean> => bedOfB.isBound(name);
  const messagesOn = async (owner: Owner): Promise<readonly string[]> => {
    const { items } = await kube.list<Event>(events, { namespace: 'default' });
    return items
      .filter(({ involvedObject: { name } }) => name?.startsWith(`of-${owner}-`))
      .map(({ reason, message }) => `${reason} ${message}`);
  };
  const commandOf = async (sutler: DropIn, ...args: readonly string[]): Promise<string> => {
    const socket = /redis=(\S+)/.exec(sutler.output())?.[1] ?? '';
    const place = [`--redis-url=unix://${socket}`, `--kubeconfig=${cluster.kubeconfig}`];
    const { out, err } = await runSutler([...args, ...place], {});
    return out + err;
  };
  /** The values of the label `driver` that are not this one, in its metrics. */
  const othersIn = async (url: string, driver: string): Promise<readonly string[]> => {
    const page = await (await fetch(`${url}/metrics`)).text();
    const named = [...page.matchAll(/\b(?:driver|driver_name|provisioner)="([^"]*)"/g)];
    return [...new Set(named.map(([, name = '']) => name))].filter(
      (name) => !['', 'unknown-driver', driver].includes(name),
    );
  };

  it('bind the claims of their own drivers', async () => {
    for (const owner of ['a', 'b'] as const) {
      await create(owner, 'first');
      await until(() => isBound(`of-${owner}-first`), `the claim of ${owner} is bound`);
    }
  });

  it('finish and reclaim what a killed one had begun, whatever the others do', async () => {
    await bedOfA.untilCreating(() => create('a', 'kept'));
    await bedOfA.untilCreating(() => create('a', 'deleted'));
    await a.kill();
    await remove('of-a-deleted');
    await bedOfB.stopGateway();
    for (const each of ['one', 'two', 'three']) {
      await create('b', each);
      await create('c', each);
    }
    await until(async () => (await messagesOn('c')).length > 1, 'C reports its failures');
    a = await bedOfA.start(TIMES);
    await until(() => isBound('of-a-kept'), 'the claim that is left is bound', 10_000);
    const named = async (): Promise<readonly string[]> => {
      const { items } = await kube.list<Volume>(volumes, {});
      return items.flatMap(({ spec }) => spec.csi?.volumeHandle ?? []);
    };
    await until(() => bedOfA.handles().length === 2, 'the volume of the deleted claim is gone');
    for (const handle of bedOfA.handles()) assert.ok((await named()).includes(handle));
  });

  it('put no finalizer on any claim', () => {
    assert.deepEqual([...finalizers], ['kubernetes.io/pvc-protection']);
  });

  it('report failures on claims of their own drivers only', async () => {
    await until(
      async () => (await messagesOn('b')).length > 1,
      'B reports its dead driver',
      20_000,
    );
    assert.doesNotMatch((await messagesOn('a')).join('\n'), /gateway\.sock|the pool of C|C can’t/);
    assert.doesNotMatch((await messagesOn('b')).join('\n'), /the pool of C|C can’t/);
    assert.doesNotMatch((await messagesOn('c')).join('\n'), /gateway\.sock/);
    assert.match((await messagesOn('c')).join('\n'), /the pool of C|C can’t/);
  });

  it('name in their logs no claim of another driver', () => {
    const logs: Readonly<Record<Owner, string>> = {
      a: a.output(),
      b: [...ingestOfB.output, ...jobsOfB.output].join(''),
      c: c.output(),
    };
    for (const owner of ['a', 'b', 'c'] as const)
      for (const other of ['a', 'b', 'c'] as const)
        if (owner !== other) assert.doesNotMatch(logs[owner], new RegExp(`of-${other}-`));
  });

  it('count in their metrics claims of their own drivers only', async () => {
    assert.deepEqual(await othersIn(a.url, A), []);
    assert.deepEqual(await othersIn(ingestOfB.url, B), []);
    assert.deepEqual(await othersIn(jobsOfB.url, B), []);
    assert.deepEqual(await othersIn(c.url, C), []);
    const pending = async (url: string): Promise<number> => {
      const page = await (await fetch(`${url}/metrics`)).text();
      const counts = [...page.matchAll(/^sutler_claims_pending\{.*\} (\d+)$/gm)];
      return counts.reduce((sum, [, count]) => sum + Number(count), 0);
    };
    await until(async () => (await pending(ingestOfB.url)) === 3, 'three claims of B', 20_000);
    await until(async () => (await pending(c.url)) === 3, 'three claims of C', 20_000);
    await until(async () => (await pending(a.url)) === 0, 'none of A', 20_000);
  });

  it('tell in status of their own drivers only', async () => {
    const told = {
      a: await commandOf(a, 'status'),
      b: await bedOfB.operate('status'),
      c: await commandOf(c, 'status'),
    };
    for (const owner of ['a', 'b', 'c'] as const)
      for (const [other, driver] of Object.entries(OWNERS))
        assert.equal(told[owner].includes(driver), owner === other, `${owner}: ${told[owner]}`);
  });

  it('have a journal each', async () => {
    const { items } = await kube.list<Lease>(leases, { namespace: 'default' });
    const owners = new Map(
      items
        .filter(({ metadata: { name } }) => name.includes('-journal-'))
        .map(({ metadata: { name, annotations } }) => [name, annotations?.['sutler.dev/driver']]),
    );
    assert.deepEqual(new Set(owners.values()), new Set([A, B, C]));
    for (const [name, driver = ''] of owners)
      assert.ok(name.startsWith(`${driver.replaceAll('.', '-')}-journal-`), `${name} ${driver}`);
  });

  it('delete volumes of their own drivers only', async () => {
    await bedOfB.startGateway();
    for (const each of ['one', 'two', 'three'])
      await until(() => isBound(`of-b-${each}`), `${each} of B is bound`, 20_000);
    for (const { metadata } of (await kube.list<Claim>(claims, { namespace: 'default' })).items)
      await remove(metadata.name);
    const left = async () => (await kube.list<Volume>(volumes, {})).items.length;
    await until(async () => (await left()) === 0, 'no PV is left', 30_000);
    assert.deepEqual([bedOfA.handles(), bedOfB.driver.volumes()], [[], []]);
    const { items } = await kube.list<Claim>(claims, { namespace: 'default' });
    assert.deepEqual(items, []);
  });
});
