import assert from 'node:assert/strict';
import { main as ingestMain } from '#src/ingest/main.ts';
import { main as jobsMain } from '#src/jobs/main.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims, classes } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import type { Host, Invocation } from '#src/runtime/process.ts';
import { startBinder } from '../../sandbox/binder/binder.ts';
import { type SampleDriverOptions, startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestGateway } from '../harness/csi-gateway.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { openSandboxCluster } from '../harness/sandbox-cluster.ts';

export const DRIVER = 'sample.csi.sutler.dev';

interface Running {
  readonly url: string;
  readonly output: string[];
}

interface Options {
  /** Flags of both processes. */
  readonly flags: readonly string[];
  readonly jobsFlags: readonly string[];
  readonly onCall?: NonNullable<SampleDriverOptions['onCall']>;
  /** Runs before the processes start. */
  readonly prepare?: (redis: TestRedis) => Promise<void>;
}

/** ingest and jobs, run inside this process as their commands run them, with a Redis, a gateway,
 * the sample driver, and the sandbox's API server and binder. */
export class Processes {
  readonly redis: TestRedis;
  readonly kube: KubeClient;
  readonly ingest: Running;
  readonly jobs: Running;
  readonly #closers: Closers;
  #serial = 0;

  private constructor(parts: Pick<Processes, 'redis' | 'kube' | 'ingest' | 'jobs'>, to: Closers) {
    this.redis = parts.redis;
    this.kube = parts.kube;
    this.ingest = parts.ingest;
    this.jobs = parts.jobs;
    this.#closers = to;
  }

  static async open({ flags, jobsFlags, onCall, prepare }: Options): Promise<Processes> {
    const closers = new Closers();
    const folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    const redis = await startTestRedis();
    closers.add('Redis', () => redis.close());
    const cluster = await openSandboxCluster();
    closers.add('cluster', () => cluster.close());
    const binder = startBinder({ operations: cluster.api.operations, log: silentLog });
    closers.add('binder', () => binder.close());
    const driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('volumes'),
      ...(onCall === undefined ? {} : { onCall }),
    });
    closers.add('driver', () => driver.close());
    const listen = { kind: 'unix', path: folder.file('gateway.sock') } as const;
    const gateway = await startTestGateway(folder, { listen, probeTimeoutMs: 5000 });
    closers.add('gateway', () => gateway.close());
    const kube = await cluster.client();
    await kube.create(classes, undefined, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'StorageClass',
      metadata: { name: 'sample' },
      provisioner: DRIVER,
    });
    await prepare?.(redis);
    const argv = [
      `--kubeconfig=${cluster.kubeconfig}`,
      `--gateway=unix://${listen.path}`,
      `--redis-url=${redis.url}`,
      '--http-endpoint=127.0.0.1:0',
      ...flags,
    ];
    const ingest = await run(ingestMain, [...argv, '--leader-election-namespace=default'], closers);
    const jobs = await run(jobsMain, [...argv, ...jobsFlags], closers);
    return new Processes({ redis, kube, ingest, jobs }, closers);
  }

  newClaim(storage = '1Mi'): Promise<Claim> {
    return this.kube.create<Claim>(claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name: `claim-${(this.#serial += 1)}`, namespace: 'default' },
      spec: {
        storageClassName: 'sample',
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage } },
      },
    });
  }

  async isBound({ metadata: { name } }: Claim): Promise<boolean> {
    const claim = await this.kube.get<Claim>(claims, { namespace: 'default', name });
    return claim?.status?.phase === 'Bound';
  }

  async close(): Promise<void> {
    assert.deepEqual(await this.#closers.close(), []);
  }
}

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
