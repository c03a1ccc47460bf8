import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { main as ingestMain } from '#src/ingest/main.ts';
import { main as jobsMain } from '#src/jobs/main.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, Lease } from '#src/kube/objects.ts';
import { claims, classes, leases } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import type { Host, Invocation } from '#src/runtime/process.ts';
import { startBinder } from '../../sandbox/binder/binder.ts';
import { startSampleDriver } from '../../sandbox/driver/server.ts';
import { startTestGateway } from '../harness/csi-gateway.ts';
import { sleep } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { openSandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

interface Running {
  readonly url: string;
  readonly output: string[];
}

describe('ingest and jobs', () => {
  const closers = new Closers();
  let redis: TestRedis;
  let kube: KubeClient;
  let ingest: Running;
  let jobs: Running;
  let serial = 0;

  before(async () => {
    const dir = await mkdtemp(join(tmpdir(), 'sutler-processes-'));
    closers.add('folder', () => rm(dir, { recursive: true, force: true }));
    redis = await startTestRedis();
    closers.add('Redis', () => redis.close());
    const cluster = await openSandboxCluster();
    closers.add('cluster', () => cluster.close());
    const binder = startBinder({ operations: cluster.api.operations, log: silentLog });
    closers.add('binder', () => binder.close());
    const driver = await startSampleDriver({
      socket: join(dir, 'csi.sock'),
      dataDir: join(dir, 'volumes'),
    });
    closers.add('driver', () => driver.close());
    const listen = { kind: 'unix', path: join(dir, 'gateway.sock') } as const;
    const gateway = await startTestGateway(
      { file: (name) => join(dir, name) },
      { listen, probeTimeoutMs: 5000 },
    );
    closers.add('gateway', () => gateway.close());
    kube = await cluster.client();
    const provisioner = 'sample.csi.sutler.dev';
    const cls = {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'StorageClass',
      metadata: { name: 'sample' },
      provisioner,
    };
    await kube.create(classes, undefined, cls);

    await redis.redis.set('{csi}:cluster', 'uid-of-another-cluster');
    const argv = [
      `--kubeconfig=${cluster.kubeconfig}`,
      `--gateway=unix://${listen.path}`,
      `--redis-url=${redis.url}`,
      '--http-endpoint=127.0.0.1:0',
      '--timeout=1s',
      '--write-allowance=1s',
    ];
    ingest = await run(ingestMain, [...argv, '--leader-election-namespace=default'], closers);
    jobs = await run(jobsMain, [...argv, '--retry-interval-start=50ms'], closers);
  });
  after(async () => {
    assert.deepEqual(await closers.close(), []);
  });

  const readiness = async ({ url }: Running): Promise<string> =>
    (await fetch(`${url}/readyz`)).text();
  const isReady = async ({ url }: Running): Promise<boolean> =>
    (await fetch(`${url}/readyz`)).status === 200;
  const newClaim = (): Promise<Claim> =>
    kube.create<Claim>(claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name: `claim-${(serial += 1)}`, namespace: 'default' },
      spec: {
        storageClassName: 'sample',
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Mi' } },
      },
    });
  const isBound = async ({ metadata: { name } }: Claim): Promise<boolean> =>
    (await kube.get<Claim>(claims, { namespace: 'default', name }))?.status?.phase === 'Bound';

  it('wait while Redis belongs to another cluster, and report it', async () => {
    const claim = await newClaim();
    for (const process of [ingest, jobs]) {
      await until(async () => /redis-cluster/.test(await readiness(process)), 'it is reported');
      await until(
        async () => /belongs to another cluster.*--redis-prefix/.test(await readiness(process)),
        'with the fix',
      );
      assert.match(
        process.output.join(''),
        /this Redis belongs to another cluster: nothing is done with it/,
      );
      assert.equal((await fetch(`${process.url}/healthz`)).status, 200);
    }
    await sleep(500);
    assert.deepEqual(await redis.redis.keys('{csi}:claims*:default*'), [], 'nothing is enqueued');
    assert.deepEqual(await redis.redis.keys('{csi}:blessing*'), []);
    assert.deepEqual(
      (await kube.list<Lease>(leases, { namespace: 'default' })).items,
      [],
      'no process leads',
    );
    assert.equal((await fetch(`${ingest.url}/healthz/leader-election`)).status, 200);
    assert.equal((await fetch(`${jobs.url}/healthz/progress`)).status, 200);
    await redis.redis.del('{csi}:cluster');
    await until(() => isBound(claim), 'the claim is bound');
    for (const process of [ingest, jobs]) await until(() => isReady(process), 'it is ready');
    assert.notEqual(await redis.redis.get('{csi}:cluster'), null);
  });

  it('mark Redis again after a flush, and go on', async () => {
    const owner = await redis.redis.get('{csi}:cluster');
    await redis.redis.flushall();
    const claim = await newClaim();
    await until(() => isBound(claim), 'the claim is bound');
    assert.equal(await redis.redis.get('{csi}:cluster'), owner);
  });

  it('report on /readyz that Redis is away, and are ready when it is back', async () => {
    await redis.kill();
    for (const process of [ingest, jobs]) {
      await until(
        async () =>
          /redis: Redis at [^ ]+( can't be reached|: connection lost)/.test(
            await readiness(process),
          ),
        'it is reported',
      );
      assert.equal((await fetch(`${process.url}/healthz`)).status, 200);
    }
    const claim = await newClaim();
    await redis.start();
    for (const process of [ingest, jobs]) await until(() => isReady(process), 'it is ready');
    await until(() => isBound(claim), 'the claim is bound');
  });
});

/** Runs a process inside this one until the closers are closed. */
async function run(
  main: (invocation: Invocation) => Promise<void>,
  argv: readonly string[],
  closers: Closers,
): Promise<Running> {
  const listeners = new Map<string, () => void>();
  const output: string[] = [];
  let exit: (code: number) => void = () => undefined;
  const exited = new Promise<number>((resolve) => (exit = resolve));
  let reportUrl: (url: string) => void = () => undefined;
  const reportedUrl = new Promise<string>((resolve) => (reportUrl = resolve));
  const host: Host = {
    argv: [],
    env: {},
    pid: 1,
    stdout: { write: (text: string) => output.push(text) },
    stderr: { write: (text: string) => output.push(text) },
    on: (event: string, listener: (error: never) => void) =>
      listeners.set(event, listener as () => void),
    exit,
    send: (message: unknown) =>
      reportUrl((message as { facts: Readonly<Record<string, string>> }).facts['http'] ?? ''),
  };
  void main({ host, argv, known: {}, retired: {} });
  const url = await Promise.race([
    reportedUrl,
    exited.then((code) => Promise.reject(new Error(`ended with ${code}: ${output.join('')}`))),
  ]);
  closers.add('process', async () => {
    listeners.get('SIGTERM')?.();
    assert.equal(await exited, 0);
  });
  return { url, output };
}
