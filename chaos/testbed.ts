import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { namespaces } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import type { Closers } from '#src/runtime/closers.ts';
import type { Logger } from '#src/runtime/log.ts';
import { version } from '#src/runtime/version.ts';
import { openControlPlane } from '../bench/control-plane.ts';
import { ChaosClock } from './clock.ts';
import { ChaosRedis } from './redis.ts';
import type { FaultTiming } from './schedule.ts';
import { Supervised } from './supervised.ts';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.ts';

/** Namespace of claims and Lease. */
export const NAMESPACE = 'sutler-chaos';

/** Processes of ingest, and of jobs. */
export const REPLICAS = 2;

const CLI = fileURLToPath(new URL('../sandbox/cli.js', import.meta.url));
const STOP_GRACE_MS = 5_000;
/** How long a slow call of the driver continues after its deadline; less than the settle time. */
const SLOW_MS = 1_000;

/** The times for sutler's flags, all derived from the deadline of a call. */
export interface Timing extends FaultTiming {
  readonly timeoutMs: number;
  readonly writeAllowanceMs: number;
  readonly settleMs: number;
}

/** Derives all times from the deadline of a call, so that a run takes minutes instead of hours. */
export function scaledTiming(timeoutMs: number, lockMs: number): Timing {
  const writeAllowanceMs = Math.max(1_000, timeoutMs);
  return {
    timeoutMs,
    writeAllowanceMs,
    settleMs: 2 * timeoutMs,
    leaseMs: 1.5 * timeoutMs,
    ownershipMs: timeoutMs + writeAllowanceMs,
    lockMs,
  };
}

export interface TestbedOptions {
  readonly backend: 'sandbox' | 'real';
  readonly seed: number;
  readonly timing: Timing;
  /** Jobs processes without volume records. */
  readonly leaky: boolean;
  /** The driver refuses CreateVolume even for volumes that exist. */
  readonly capricious: boolean;
  /** Share of driver calls that take longer than their deadline. */
  readonly slowShare: number;
  readonly ingestArgs: readonly string[];
  readonly jobsArgs: readonly string[];
  /** Empty: a temp folder. */
  readonly dataDir: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly node: string;
  readonly log: Logger;
  readonly closers: Closers;
}

type FreezeApiServer = (forMs: number, signal: AbortSignal) => Promise<void>;

/** The started processes, each of which can be killed and frozen. */
export interface Testbed {
  readonly dir: string;
  readonly driverName: string;
  /** Bypasses the proxy, so that the workload and the observer are never cut off. */
  readonly client: KubeClient;
  /** In front of the API server. */
  readonly proxy: TcpProxy;
  /** Sends SIGSTOP to the API server, and after a while SIGCONT. */
  readonly freezeApiServer: FreezeApiServer;
  readonly redis: ChaosRedis;
  readonly driver: Supervised;
  readonly gateway: Supervised;
  readonly ingest: readonly Supervised[];
  readonly jobs: readonly Supervised[];
  /** The clocks of the jobs processes. */
  readonly clocks: readonly ChaosClock[];
  readonly callLog: string;
  readonly volumesDir: string;
  /** Exits that no fault explains, and errors in logs that show a defect. */
  readonly troubles: readonly string[];
  /** Keeps the folder at the end. */
  keep(): void;
  /** Kills all processes without waiting, for the exit of this process. */
  killNow(): void;
}

/** Starts a Kubernetes API with a proxy in front, driver, Redis, gateway, two ingest and two jobs.
 * Each is a separate process. */
export async function startTestbed(options: TestbedOptions): Promise<Testbed> {
  const { closers, log, timing } = options;
  const dir = await openFolder(options.dataDir);
  let keeps = options.dataDir !== '';
  closers.add('folder', () => (keeps ? undefined : rm(dir, { recursive: true, force: true })));
  const logsDir = join(dir, 'logs');
  await mkdir(logsDir, { recursive: true });
  const troubles: string[] = [];
  const children: Supervised[] = [];

  const start = async (
    name: string,
    script: string,
    args: readonly string[],
    { env = {}, nodeArgs = [] }: StartOptions = {},
  ) => {
    const child = new Supervised({
      name,
      command: [options.node, '--enable-source-maps', ...nodeArgs, script, ...args],
      // Keeps every process away from clusters other than the testbed's.
      env: { ...options.env, KUBECONFIG: '', KUBERNETES_SERVICE_HOST: '', ...env },
      logFile: join(logsDir, `${name}.log`),
      onTrouble: (what) => {
        troubles.push(`${name}: ${what}`);
        log.warn({ process: name, what }, 'trouble');
      },
    });
    children.push(child);
    closers.add(name, () => child.stop(STOP_GRACE_MS));
    return { child, facts: await child.start() };
  };
  const sutler = (name: string, args: readonly string[], o: StartOptions = {}) =>
    start(
      name,
      CLI,
      [name.split('#')[0] ?? name, '-v=4', '--http-endpoint=127.0.0.1:0', ...args],
      o,
    );

  const { kubeconfig, proxied, proxy, freezeApiServer } = await openCluster(options, dir, sutler);
  const redis = await ChaosRedis.start({ dataDir: join(dir, 'redis'), log });
  closers.add('redis-server', () => redis.close());
  const socket = `unix://${join(dir, 'csi.sock')}`;
  const gatewaySocket = `unix://${join(dir, 'gateway.sock')}`;
  const callLog = join(dir, 'driver-calls.jsonl');
  const volumesDir = join(dir, 'volumes');
  const driver = await start('driver', fileURLToPath(new URL('./driver.js', import.meta.url)), [
    `--csi-address=${socket}`,
    `--data-dir=${volumesDir}`,
    `--call-log=${callLog}`,
    `--seed=${options.seed}`,
    `--capricious=${options.capricious}`,
    `--slow-share=${options.slowShare}`,
    `--slow-ms=${timing.timeoutMs + SLOW_MS}`,
  ]);
  const driverName = driver.facts['driver'] ?? '';
  const timeout = `--timeout=${timing.timeoutMs}ms`;
  const gateway = await sutler('csi-gateway', [
    `--csi-address=${socket}`,
    `--listen=${gatewaySocket}`,
    timeout,
    '--grace-period=2s',
  ]);

  const client = createKubeClient({
    access: await loadClusterAccess({ kubeconfig, env: {} }),
    userAgent: `sutler-chaos/${version}`,
    log,
  });
  closers.add('API client', () => client.close());
  await client.create(namespaces, undefined, {
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name: NAMESPACE },
  });

  const common = [
    `--kubeconfig=${proxied}`,
    `--gateway=${gatewaySocket}`,
    timeout,
    `--settle-time=${timing.settleMs}ms`,
    `--lock-duration=${timing.lockMs}ms`,
    `--write-allowance=${timing.writeAllowanceMs}ms`,
  ];
  const env = { REDIS_URL: redis.url };
  const ingestArgs = [
    ...common,
    '--leader-election=true',
    `--leader-election-namespace=${NAMESPACE}`,
    `--leader-election-lease-duration=${timing.leaseMs}ms`,
    `--leader-election-renew-deadline=${Math.round(timing.leaseMs * 0.67)}ms`,
    `--leader-election-retry-period=${Math.round(timing.leaseMs * 0.2)}ms`,
    '--resync-interval=5s',
    ...options.ingestArgs,
  ];
  const jobsArgs = [
    ...common,
    '-v=4',
    '--http-endpoint=127.0.0.1:0',
    '--worker-threads=20',
    '--retry-interval-start=100ms',
    '--retry-interval-max=2s',
    '--grace-period=2s',
    ...options.jobsArgs,
  ];
  const ingest: Supervised[] = [];
  const jobs: Supervised[] = [];
  const clocks = Array.from(
    { length: REPLICAS },
    (_, i) => new ChaosClock(join(dir, `clock-${i}`)),
  );
  const leakyJobs = fileURLToPath(new URL('./leaky-jobs.js', import.meta.url));
  for (let i = 1; i <= REPLICAS; i += 1)
    ingest.push((await sutler(`ingest#${i}`, ingestArgs, { env })).child);
  for (const [i, clock] of clocks.entries()) {
    const [script, args] = options.leaky ? [leakyJobs, jobsArgs] : [CLI, ['jobs', ...jobsArgs]];
    const o = { env: { ...env, ...clock.env }, nodeArgs: clock.nodeArgs };
    jobs.push((await start(`jobs#${i + 1}`, script, args, o)).child);
  }
  return {
    dir,
    driverName,
    client,
    proxy,
    freezeApiServer,
    redis,
    driver: driver.child,
    gateway: gateway.child,
    ingest,
    jobs,
    clocks,
    callLog,
    volumesDir,
    troubles,
    keep: () => (keeps = true),
    killNow() {
      for (const child of children) child.killNow();
      redis.killNow();
    },
  };
}

async function openFolder(dataDir: string): Promise<string> {
  if (dataDir === '') return mkdtemp(join(tmpdir(), 'sutler-chaos-'));
  const dir = resolve(dataDir);
  // Volumes and records of an earlier run would be counted as leaks of this one.
  await rm(dir, { recursive: true, force: true });
  await mkdir(dir, { recursive: true });
  return dir;
}

interface StartOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** Arguments of node itself. */
  readonly nodeArgs?: readonly string[];
}

type StartSutler = (
  name: string,
  args: readonly string[],
) => Promise<{ readonly child: Supervised }>;

interface Cluster {
  readonly kubeconfig: string;
  /** The same through the proxy. */
  readonly proxied: string;
  readonly proxy: TcpProxy;
  readonly freezeApiServer: FreezeApiServer;
}

async function openCluster(
  options: TestbedOptions,
  dir: string,
  start: StartSutler,
): Promise<Cluster> {
  const { closers } = options;
  if (options.backend === 'real') {
    // Never the cluster of KUBECONFIG, which is not for injecting faults.
    const cluster = await openControlPlane({ ...options.env, KUBECONFIG: undefined }, true);
    closers.add('control plane', () => cluster.close());
    const proxy = await startTcpProxy('127.0.0.1');
    closers.add('proxy', () => proxy.close());
    const { port } = new URL(cluster.url);
    proxy.aim(Number(port));
    return {
      kubeconfig: cluster.kubeconfig,
      proxied: await redirect(cluster.kubeconfig, dir, `127.0.0.1:${proxy.port}`),
      proxy,
      freezeApiServer: (forMs, signal) => freezeProgram(cluster.apiServerPid, forMs, signal),
    };
  }
  // The sandbox answers to its own port only, so the proxy has the same port on the other loopback
  // address.
  const proxy = await startTcpProxy('::1');
  closers.add('proxy', () => proxy.close());
  proxy.aim(proxy.port);
  const kubeconfig = join(dir, 'kubeconfig');
  const args = [`--api-port=${proxy.port}`, `--kubeconfig-out=${kubeconfig}`];
  const { child } = await start('sandbox-api', args);
  return {
    kubeconfig,
    proxied: await redirect(kubeconfig, dir, `[::1]:${proxy.port}`),
    proxy,
    freezeApiServer: (forMs, signal) => child.freeze(forMs, signal),
  };
}

async function freezeProgram(
  pid: number | undefined,
  forMs: number,
  signal: AbortSignal,
): Promise<void> {
  if (pid === undefined) throw new Error('the API server is not a child process of this one');
  process.kill(pid, 'SIGSTOP');
  await systemClock.sleep(forMs, signal);
  process.kill(pid, 'SIGCONT');
}

/** A copy of the kubeconfig with another server. */
async function redirect(kubeconfig: string, dir: string, host: string): Promise<string> {
  const path = join(dir, 'kubeconfig-proxied');
  const text = await readFile(kubeconfig, 'utf8');
  await writeFile(path, text.replace(/(server: "?https:\/\/)127\.0\.0\.1:\d+/, `$1${host}`), {
    mode: 0o600,
  });
  return path;
}
