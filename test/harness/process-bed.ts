import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { flagsOf } from '#src/dispatch.ts';
import { main as ingestMain } from '#src/ingest/main.ts';
import { main as jobsMain } from '#src/jobs/main.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, ClaimSpec } from '#src/kube/objects.ts';
import { claims, classes } from '#src/kube/resources.ts';
import { processes } from '#src/processes.ts';
import { systemClock } from '#src/runtime/clock.ts';
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
import { assertNothingDenied, redisUsers, urlOf } from './redis-users.ts';
import { startTestRedis, type TestRedis } from './redis.ts';
import { runSutler } from './run-sutler.ts';
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
  /** How both reach the driver; absent: by the gateway of the bed's own driver. */
  readonly gatewayFlags?: readonly string[];
  readonly env?: Host['env'];
  readonly onCall?: NonNullable<SampleDriverOptions['onCall']>;
  /** How far the gateway's clock is ahead of that of the processes. */
  readonly gatewayAheadMs?: number;
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
  readonly #recordKeys: string;
  #serial = 0;

  private constructor(parts: {
    readonly redis: TestRedis;
    readonly cluster: SandboxCluster;
    readonly kube: KubeClient;
    readonly driver: SampleDriver;
    readonly closers: Closers;
    readonly argv: readonly string[];
    readonly env: Host['env'];
    readonly recordKeys: string;
  }) {
    this.redis = parts.redis;
    this.cluster = parts.cluster;
    this.kube = parts.kube;
    this.driver = parts.driver;
    this.#closers = parts.closers;
    this.#argv = parts.argv;
    this.#env = parts.env;
    this.#recordKeys = parts.recordKeys;
  }

  static async open(options: BedOptions = {}): Promise<ProcessBed> {
    const {
      settings = [],
      flags = [],
      gatewayFlags,
      env = {},
      onCall,
      pools,
      gatewayAheadMs = 0,
    } = options;
    const closers = new Closers();
    const folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    const redis = await startTestRedis({ settings: [...redisUsers(), ...settings] });
    closers.add('Redis', () => redis.close());
    closers.add('least rights', () => assertNothingDenied(redis.redis));
    const cluster = await openSandboxCluster();
    closers.add('cluster', () => cluster.close());
    const binder = startBinder({ operations: cluster.api.operations, log: silentLog });
    closers.add('binder', () => binder.close());
    await writeFile(folder.file('record-keys'), `${randomBytes(32).toString('hex')}\n`);
    const driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('volumes'),
      ...(onCall === undefined ? {} : { onCall }),
      ...(pools === undefined ? {} : { pools }),
    });
    closers.add('driver', () => driver.close());
    const listen = { kind: 'unix', path: folder.file('gateway.sock') } as const;
    const clock = { ...systemClock, nowMs: () => Date.now() + gatewayAheadMs };
    const gateway = await startTestGateway(folder, { listen, probeTimeoutMs: 5000, clock });
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
      ...(gatewayFlags ?? [`--gateway=unix://${listen.path}`]),
      '--http-endpoint=127.0.0.1:0',
      '--timeout=1s',
      '--write-allowance=1s',
      ...flags,
    ];
    const recordKeys = folder.file('record-keys');
    return new ProcessBed({ redis, cluster, kube, driver, closers, argv, env, recordKeys });
  }

  startIngest(...flags: readonly string[]): Promise<Running> {
    const redis = `--redis-url=${urlOf('ingest', this.redis.url)}`;
    const argv = [...this.#argv, redis, '--leader-election-namespace=default', ...flags];
    return this.#start('ingest', ingestMain, argv);
  }

  startJobs(...flags: readonly string[]): Promise<Running> {
    const redis = `--redis-url=${urlOf('jobs', this.redis.url)}`;
    const keys = `--record-key-file=${this.#recordKeys}`;
    const argv = [...this.#argv, redis, keys, '--retry-interval-start=50ms', ...flags];
    return this.#start('jobs', jobsMain, argv);
  }

  /** Runs a command of `sutler` as the operator's user, with those of the processes' flags that it
   * has.
   * @returns what it prints, also where it is refused */
  async operate(command: string, ...args: readonly string[]): Promise<string> {
    const { flags = {} } = processes[command] ?? {};
    const redis = `--redis-url=${urlOf('operator', this.redis.url)}`;
    const own = this.#argv.filter((flag) => (/^--([^=]+)/.exec(flag)?.[1] ?? '') in flags);
    const { out, err } = await runSutler([command, ...args, ...own, redis], this.#env);
    return out + err;
  }

  newClaim(storage = '1Mi', spec: Partial<ClaimSpec> = {}): Promise<Claim> {
    return this.kube.create<Claim>(claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name: `claim-${(this.#serial += 1)}`, namespace: 'default' },
      spec: {
        storageClassName: 'sample',
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage } },
        ...spec,
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
