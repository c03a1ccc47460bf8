import assert from 'node:assert/strict';
import { flagsOf } from '#src/dispatch.ts';
import { main as ingestMain } from '#src/ingest/main.ts';
import { main as jobsMain } from '#src/jobs/main.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims, classes } from '#src/kube/resources.ts';
import { processes } from '#src/processes.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import type { Host, Invocation } from '#src/runtime/process.ts';
import { startBinder } from '../../sandbox/binder/binder.ts';
import {
  type SampleDriver,
  type SampleDriverOptions,
  startSampleDriver,
} from '../../sandbox/driver/server.ts';
import { makeFolder } from './csi-folder.ts';
import { startTestGateway } from './csi-gateway.ts';
import { redisUsers, urlOf } from './redis-users.ts';
import { startTestRedis, type TestRedis } from './redis.ts';
import { openSandboxCluster, type SandboxCluster } from './sandbox-cluster.ts';

/** Name of the sample driver. */
export const DRIVER = 'sample.csi.sutler.dev';

/** A main that runs inside this process. */
export interface Running {
  /** Of its HTTP endpoint. */
  readonly url: string;
  /** What it logged. */
  readonly output: readonly string[];
  /** Ends it as SIGTERM does. */
  stop(): Promise<void>;
}

interface BedOptions {
  /** Of the redis-server. */
  readonly settings?: readonly string[];
  /** Of both processes; of two values of a flag the last one counts. */
  readonly flags?: readonly string[];
  readonly env?: Host['env'];
  readonly onCall?: NonNullable<SampleDriverOptions['onCall']>;
  /** Of the driver; absent: one without topology. */
  readonly pools?: NonNullable<SampleDriverOptions['pools']>;
}

/** A Redis with the users of k8s/redis, a cluster with a class and a volume binder, a sample driver
 * and its gateway; ingest and jobs are started by the test, each as its user. */
export class ProcessBed {
  readonly redis: TestRedis;
  readonly cluster: SandboxCluster;
  readonly kube: KubeClient;
  readonly driver: SampleDriver;
  readonly #closers: Closers;
  readonly #argv: readonly string[];
  readonly #env: Host['env'];
  #serial = 0;

  private constructor(parts: {
    readonly redis: TestRedis;
    readonly cluster: SandboxCluster;
    readonly kube: KubeClient;
    readonly driver: SampleDriver;
    readonly closers: Closers;
    readonly argv: readonly string[];
    readonly env: Host['env'];
  }) {
    this.redis = parts.redis;
    this.cluster = parts.cluster;
    this.kube = parts.kube;
    this.driver = parts.driver;
    this.#closers = parts.closers;
    this.#argv = parts.argv;
    this.#env = parts.env;
  }

  static async open(options: BedOptions = {}): Promise<ProcessBed> {
    const { settings = [], flags = [], env = {}, onCall, pools } = options;
    const closers = new Closers();
    const folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    const redis = await startTestRedis({ settings: [...redisUsers(), ...settings] });
    closers.add('Redis', () => redis.close());
    const cluster = await openSandboxCluster();
    closers.add('cluster', () => cluster.close());
    const binder = startBinder({ operations: cluster.api.operations, log: silentLog });
    closers.add('binder', () => binder.close());
    const driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('volumes'),
      ...(onCall === undefined ? {} : { onCall }),
      ...(pools === undefined ? {} : { pools }),
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
    const argv = [
      `--kubeconfig=${cluster.kubeconfig}`,
      `--gateway=unix://${listen.path}`,
      '--http-endpoint=127.0.0.1:0',
      '--timeout=1s',
      '--write-allowance=1s',
      ...flags,
    ];
    return new ProcessBed({ redis, cluster, kube, driver, closers, argv, env });
  }

  startIngest(...flags: readonly string[]): Promise<Running> {
    const redis = `--redis-url=${urlOf('ingest', this.redis.url)}`;
    const argv = [...this.#argv, redis, '--leader-election-namespace=default', ...flags];
    return this.#start('ingest', ingestMain, argv);
  }

  startJobs(...flags: readonly string[]): Promise<Running> {
    const redis = `--redis-url=${urlOf('jobs', this.redis.url)}`;
    const argv = [...this.#argv, redis, '--retry-interval-start=50ms', ...flags];
    return this.#start('jobs', jobsMain, argv);
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

  /** Ends everything. */
  async close(): Promise<void> {
    assert.deepEqual(await this.#closers.close(), []);
  }

  async #start(
    name: string,
    main: (invocation: Invocation) => Promise<void>,
    argv: readonly string[],
  ): Promise<Running> {
    const running = await runMain(main, argv, this.#env);
    this.#closers.add(name, () => running.stop());
    return running;
  }
}

/** What /readyz says. */
export async function readiness({ url }: Running): Promise<string> {
  return (await fetch(`${url}/readyz`)).text();
}

export async function isReady({ url }: Running): Promise<boolean> {
  return (await fetch(`${url}/readyz`)).status === 200;
}

/** Runs a main inside this process, with a substitute for Node's `process`. */
export async function runMain(
  main: (invocation: Invocation) => Promise<void>,
  argv: readonly string[],
  env: Host['env'],
): Promise<Running> {
  const listeners = new Map<string, () => void>();
  const output: string[] = [];
  let exit: (code: number) => void = () => undefined;
  const exited = new Promise<number>((resolve) => (exit = resolve));
  let reportUrl: (url: string) => void = () => undefined;
  const reportedUrl = new Promise<string>((resolve) => (reportUrl = resolve));
  const host: Host = {
    argv: [],
    env,
    pid: 1,
    stdout: { write: (text: string) => output.push(text) },
    stderr: { write: (text: string) => output.push(text) },
    on: (event: string, listener: (error: never) => void) =>
      listeners.set(event, listener as () => void),
    exit,
    send: (message: unknown) =>
      reportUrl((message as { facts: Readonly<Record<string, string>> }).facts['http'] ?? ''),
  };
  void main({ host, argv, known: flagsOf(processes), retired: {} });
  const url = await Promise.race([
    reportedUrl,
    exited.then((code) => Promise.reject(new Error(`ended with ${code}: ${output.join('')}`))),
  ]);
  return {
    url,
    output,
    async stop() {
      listeners.get('SIGTERM')?.();
      assert.equal(await exited, 0);
    },
  };
}
