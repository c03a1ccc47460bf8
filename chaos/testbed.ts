import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { doubtMsOf } from '#src/election/flags.ts';
import { createKubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { namespaces } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import type { Closers } from '#src/runtime/closers.ts';
import type { Logger } from '#src/runtime/log.ts';
import { version } from '#src/runtime/version.ts';
import { openControlPlane } from '../bench/control-plane.ts';
import { type FaultyRedis, OwnRedis } from './faulty-redis.ts';
import type { Replicas } from './leader.ts';
import { ChaosRedis } from './redis.ts';
import type { FaultTiming, Form } from './schedule.ts';
import { Supervised } from './supervised.ts';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.ts';

/** Namespace of claims and Lease. */
export const NAMESPACE = 'sutler-chaos';

/** Processes of ingest and of jobs, or drop-ins. */
export const REPLICAS = 2;

const CLI = fileURLToPath(new URL('../sandbox/cli.js', import.meta.url));
const STOP_GRACE_MS = 5_000;
/** The times for sutler's flags. */
export interface Timing extends FaultTiming {
  readonly settleMs: number;
}

/** Derives all times from the flags, so that a run takes minutes instead of hours. */
export function scaledTiming(o: {
  readonly timeoutMs: number;
  readonly settleTimeMs: number;
  readonly lockDurationMs: number;
}): Timing {
  return {
    timeoutMs: o.timeoutMs,
    settleMs: o.settleTimeMs,
    leaseMs: 1.5 * o.timeoutMs,
    doubtMs: doubtMsOf(o),
    lockMs: o.lockDurationMs,
  };
}

export interface TestbedOptions {
  readonly backend: 'sandbox' | 'real';
  readonly form: Form;
  readonly seed: number;
  readonly timing: Timing;
  /** Jobs processes that finish claims too early. */
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

/** The started processes, each of which can be killed and frozen. `client` bypasses the proxy, so
 * that the workload and the observer are never cut off. */
export interface Testbed extends Replicas {
  readonly dir: string;
  /** In front of the API server. */
  readonly proxy: TcpProxy;
  /** Sends SIGSTOP to the API server, and after a while SIGCONT. */
  readonly freezeApiServer: FreezeApiServer;
  readonly redis: FaultyRedis;
  /** The Redis that all processes share; undefined where each has its own. */
  readonly server: ChaosRedis | undefined;
  readonly driver: Supervised;
  readonly gateway: Supervised | undefined;
  /** Empty for drop-ins, which are their own jobs processes. */
  readonly jobs: readonly Supervised[];
  readonly callLog: string;
  readonly volumesDir: string;
  /** Exits that no fault explains, and errors in logs that show a defect. */
  readonly troubles: readonly string[];
  /** Keeps the folder at the end. */
  keep(): void;
  /** Kills all processes without waiting, for the exit of this process. */
  killNow(): void;
}

/** Starts a Kubernetes API with a proxy in front, a driver, and sutler in one of its forms. Each is
 * a separate process. */
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
    { env = {} }: StartOptions = {},
  ) => {
    const child = new Supervised({
      name,
      command: [options.node, '--enable-source-maps', script, ...args],
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
  const socket = `unix://${join(dir, 'csi.sock')}`;
  const callLog = join(dir, 'driver-calls.jsonl');
  const volumesDir = join(dir, 'volumes');
  const driver = await start('driver', fileURLToPath(new URL('./driver.js', import.meta.url)), [
    `--csi-address=${socket}`,
    `--data-dir=${volumesDir}`,
    `--call-log=${callLog}`,
    `--seed=${options.seed}`,
    `--capricious=${options.capricious}`,
    `--slow-share=${options.slowShare}`,
    `--slow-ms=${timing.timeoutMs + timing.settleMs / 2}`,
  ]);
  const driverName = driver.facts['driver'] ?? '';
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

  const place = { dir, socket, kubeconfig: proxied, start, sutler };
  const replicas = { client, driverName, namespace: NAMESPACE };
  const parts =
    options.form === 'drop-in'
      ? await startDropIns(options, place, replicas)
      : await startParts(options, place);
  return {
    ...replicas,
    ...parts,
    dir,
    proxy,
    freezeApiServer,
    driver: driver.child,
    callLog,
    volumesDir,
    troubles,
    keep: () => (keeps = true),
    killNow() {
      for (const child of children) child.killNow();
      parts.server?.killNow();
    },
  };
}

interface Place {
  readonly dir: string;
  /** Of the driver. */
  readonly socket: string;
  readonly kubeconfig: string;
  readonly start: Start;
  readonly sutler: StartSutler;
}

type Parts = Pick<Testbed, 'redis' | 'server' | 'gateway' | 'ingest' | 'jobs'>;

function flagsOf({ timing, ingestArgs, jobsArgs }: TestbedOptions, kubeconfig: string) {
  const { timeoutMs, settleMs, lockMs, leaseMs } = timing;
  const common = [
    `--kubeconfig=${kubeconfig}`,
    `--timeout=${timeoutMs}ms`,
    `--settle-time=${settleMs}ms`,
    `--lock-duration=${lockMs}ms`,
    `--leader-election-namespace=${NAMESPACE}`,
  ];
  const ofIngest = [
    '--leader-election=true',
    `--leader-election-lease-duration=${leaseMs}ms`,
    `--leader-election-renew-deadline=${Math.round(leaseMs * 0.67)}ms`,
    `--leader-election-retry-period=${Math.round(leaseMs * 0.2)}ms`,
    '--resync-interval=5s',
    ...ingestArgs,
  ];
  const ofJobs = [
    '--worker-threads=20',
    '--retry-interval-start=100ms',
    '--retry-interval-max=2s',
    '--grace-period=2s',
    ...jobsArgs,
  ];
  return { common, ofIngest, ofJobs };
}

/** Starts Redis, a gateway, two ingest and two jobs. */
async function startParts(options: TestbedOptions, place: Place): Promise<Parts> {
  const { closers, log, timing } = options;
  const { dir, socket, start, sutler } = place;
  const redis = await ChaosRedis.start({ dataDir: join(dir, 'redis'), log });
  closers.add('redis-server', () => redis.close());
  const listen = `unix://${join(dir, 'gateway.sock')}`;
  const gateway = await sutler('csi-gateway', [
    `--csi-address=${socket}`,
    `--listen=${listen}`,
    `--timeout=${timing.timeoutMs}ms`,
    '--grace-period=2s',
  ]);
  const env = { REDIS_URL: redis.url };
  const { common, ofIngest, ofJobs } = flagsOf(options, place.kubeconfig);
  const ingestArgs = [...common, `--gateway=${listen}`, ...ofIngest];
  const jobsArgs = [...common, `--gateway=${listen}`, ...ofJobs];
  const leakyJobs = fileURLToPath(new URL('./leaky-jobs.js', import.meta.url));
  const leakyArgs = ['-v=4', '--http-endpoint=127.0.0.1:0', ...jobsArgs];
  const ingest: Supervised[] = [];
  const jobs: Supervised[] = [];
  for (let i = 1; i <= REPLICAS; i += 1)
    ingest.push((await sutler(`ingest#${i}`, ingestArgs, { env })).child);
  for (let i = 1; i <= REPLICAS; i += 1) {
    const started = options.leaky
      ? start(`jobs#${i}`, leakyJobs, leakyArgs, { env })
      : sutler(`jobs#${i}`, jobsArgs, { env });
    jobs.push((await started).child);
  }
  return { redis, server: redis, gateway: gateway.child, ingest, jobs };
}

/** Starts two replicas in the place of external-provisioner. */
async function startDropIns(
  options: TestbedOptions,
  { dir, socket, kubeconfig, sutler }: Place,
  replicas: Omit<Replicas, 'ingest'>,
): Promise<Parts> {
  const { common, ofIngest, ofJobs } = flagsOf(options, kubeconfig);
  const args = [`--csi-address=${socket}`, ...common, ...ofIngest, ...ofJobs];
  const ingest: Supervised[] = [];
  for (let i = 1; i <= REPLICAS; i += 1) {
    // As containers have, each has a folder and a host name of its own.
    const folder = join(dir, `container-${i}`);
    await mkdir(folder);
    const env = { TMPDIR: folder, HOSTNAME: `container-${i}` };
    ingest.push((await sutler(`all#${i}`, args, { env })).child);
  }
  const redis = new OwnRedis({ ...replicas, ingest });
  return { redis, server: undefined, gateway: undefined, ingest, jobs: [] };
}

async function openFolder(dataDir: string): Promise<string> {
  if (dataDir === '') return mkdtemp(join(tmpdir(), 'sutler-chaos-'));
  const dir = resolve(dataDir);
  // Volumes of an earlier run would be counted as leaks of this one.
  await rm(dir, { recursive: true, force: true });
  await mkdir(dir, { recursive: true });
  return dir;
}

interface StartOptions {
  readonly env?: Readonly<Record<string, string>>;
}

type Start = (
  name: string,
  script: string,
  args: readonly string[],
  o?: StartOptions,
) => Promise<{ readonly child: Supervised }>;

type StartSutler = (
  name: string,
  args: readonly string[],
  o?: StartOptions,
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
  await writeFile(path, text.replace(/(server"?: "?https?:\/\/)127\.0\.0\.1:\d+/, `$1${host}`), {
    mode: 0o600,
  });
  return path;
}
