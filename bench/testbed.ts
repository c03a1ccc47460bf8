import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { createWriteStream } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { unlessAborted } from '#src/runtime/clock.ts';
import type { Closers } from '#src/runtime/closers.ts';
import type { Logger } from '#src/runtime/log.ts';
import { type Child, startChild } from '../sandbox/children.ts';
import { startRedisServer } from '../test/harness/redis-server.ts';
import { openControlPlane } from './control-plane.ts';
import { childrenOf } from './proc.ts';

const CLI = fileURLToPath(new URL('../sandbox/cli.js', import.meta.url));
const STOP_GRACE_MS = 30_000;
/** Characters of a process's output that an error shows. */
const KEPT_OUTPUT = 2_000;
/** Programs of a real control plane. The kernel cuts their names to 15 letters. */
const CONTROL_PLANE = ['etcd', 'kube-apiserver', 'kube-controller'];

export interface BackendOptions {
  readonly backend: 'sandbox' | 'real';
  /** Whether claims become Bound; always so in the sandbox. */
  readonly binder: boolean;
  readonly driverDelayMs: number;
  /** Empty: no CPU profiles. */
  readonly profileDir: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Pid of this process: the parent of a real control plane's processes. */
  readonly pid: number;
  readonly node: string;
  readonly log: Logger;
  readonly closers: Closers;
  readonly stopping: AbortSignal;
}

export interface SutlerOptions {
  /** Path of cli.js; '' for the one that tsc compiled. */
  readonly program: string;
  /** For ingest and jobs alike. */
  readonly commonArgs: readonly string[];
  readonly workers: number;
  readonly workerThreads: number;
}

/** One process of the testbed. */
export interface Member {
  readonly name: string;
  readonly pid: number;
  /** Address of its metrics; undefined where it has none. */
  readonly http: string | undefined;
}

/** A Kubernetes API, a driver and Redis, with their files in a temporary folder. */
export interface Backend {
  readonly kubeconfig: string;
  readonly driver: string;
  readonly redisUrl: string;
  /** The driver's socket. */
  readonly socket: string;
  readonly dir: string;
  /** One file for each process. */
  readonly logsDir: string;
  readonly members: readonly Member[];
  /** Starts `sutler PROCESS`. */
  start(plan: ProcessPlan): Promise<StartedProcess>;
}

export interface ProcessPlan {
  /** PROCESS or PROCESS#NUMBER. */
  readonly name: string;
  readonly args: readonly string[];
  /** As in SutlerOptions; the sandbox's own processes have none. */
  readonly program?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Where the process is stopped at the end. */
  readonly closers: Closers;
}

export interface StartedProcess {
  readonly member: Member;
  /** What the process announced. */
  readonly facts: Readonly<Record<string, string>>;
}

/** The started processes, ready for claims. */
export interface Testbed extends Omit<Backend, 'start'> {}

/** Starts a Kubernetes API, driver, Redis, gateway, ingest and jobs, each as a separate process
 * with its files in a temporary folder. */
export async function startTestbed(options: BackendOptions & SutlerOptions): Promise<Testbed> {
  const backend = await openBackend(options);
  const sutler = await startSutler(backend, { ...options, closers: options.closers });
  return { ...backend, members: [...backend.members, ...sutler] };
}

/** Starts a Kubernetes API, a driver and Redis. */
export async function openBackend(options: BackendOptions): Promise<Backend> {
  const { closers } = options;
  const dir = await mkdtemp(join(tmpdir(), 'sutler-bench-'));
  closers.add('folder', () => rm(dir, { recursive: true, force: true }));
  const logsDir = join(dir, 'logs');
  await mkdir(logsDir);
  const start = (plan: ProcessPlan) => startProcess(options, logsDir, plan);
  const members: Member[] = [];
  const kubeconfig = await startCluster(options, { dir, start, members });
  const redis = await startRedisServer({ dataDir: join(dir, 'redis') });
  closers.add('redis-server', () => redis.close());
  members.push({ name: 'redis-server', pid: redis.pid, http: undefined });
  const socket = `unix://${join(dir, 'csi.sock')}`;
  const { member, facts } = await start({
    name: 'sandbox-driver',
    args: [
      `--csi-address=${socket}`,
      `--data-dir=${join(dir, 'volumes')}`,
      `--delay-ms=${options.driverDelayMs}`,
      '--capacity-gib=1000000',
    ],
    closers,
  });
  members.push(member);
  const { driver = '' } = facts;
  return { kubeconfig, driver, redisUrl: redis.url, socket, dir, logsDir, members, start };
}

/** Starts gateway, ingest and jobs on a backend. */
export async function startSutler(
  { kubeconfig, redisUrl, socket, dir, start }: Backend,
  options: SutlerOptions & { readonly closers: Closers },
): Promise<readonly Member[]> {
  const { workers, workerThreads, commonArgs, program, closers } = options;
  const gateway = `unix://${join(dir, 'gateway.sock')}`;
  const common = [`--kubeconfig=${kubeconfig}`, `--gateway=${gateway}`, ...commonArgs];
  const env = { REDIS_URL: redisUrl };
  const gatewayMember = await start({
    name: 'csi-gateway',
    args: [`--csi-address=${socket}`, `--listen=${gateway}`],
    program,
    closers,
  });
  const names = Array.from({ length: workers }, (_, i) =>
    workers === 1 ? 'jobs' : `jobs#${i + 1}`,
  );
  const jobs = [...common, `--worker-threads=${workerThreads}`];
  // All at once, as in a cluster.
  const others = await Promise.all([
    start({ name: 'ingest', args: [...common, '--leader-election=true'], env, program, closers }),
    ...names.map((name) => start({ name, args: jobs, env, program, closers })),
  ]);
  return [gatewayMember, ...others].map(({ member }) => member);
}

async function startProcess(
  options: BackendOptions,
  logsDir: string,
  { name, args, program = '', env = {}, closers }: ProcessPlan,
): Promise<StartedProcess> {
  const { log } = options;
  const file = createWriteStream(join(logsDir, `${name}.log`), { flags: 'a' });
  const [process = name] = name.split('#');
  const profile =
    options.profileDir !== '' && ['ingest', 'jobs', 'csi-gateway'].includes(process)
      ? [
          '--cpu-prof',
          `--cpu-prof-dir=${options.profileDir}`,
          `--cpu-prof-name=${name}-${Date.now()}.cpuprofile`,
        ]
      : [];
  let reject: (error: Error) => void = () => undefined;
  const failure = new Promise<never>((_, rejectFailure) => (reject = rejectFailure));
  failure.catch(() => undefined);
  let output = '';
  const child: Child = startChild(
    {
      name,
      command: [
        options.node,
        ...profile,
        program === '' ? CLI : program,
        process,
        '--http-endpoint=127.0.0.1:0',
        ...args,
      ],
      // Keeps every process away from clusters other than the testbed's.
      env: { ...options.env, KUBECONFIG: '', KUBERNETES_SERVICE_HOST: '', ...env },
      output: (text) => {
        file.write(text);
        output = (output + text).slice(-KEPT_OUTPUT);
      },
    },
    { log, onUsageError: () => reject(new Error(`${name} refuses its flags: ${output}`)) },
  );
  closers.add(name, async () => {
    await child.stop(STOP_GRACE_MS);
    file.end();
  });
  const starting = Promise.race([child.announced, failure]);
  const facts = await unlessAborted(starting, options.stopping).catch((cause: unknown) => {
    throw new Error(`${name} did not start: ${output}`, { cause });
  });
  if (facts === undefined) throw new Error(`stopped before ${name} had started`);
  log.info({ process: name, pid: child.pid }, 'started');
  return { member: { name, pid: child.pid ?? 0, http: facts['http'] }, facts };
}

interface ClusterStart {
  readonly dir: string;
  readonly start: Backend['start'];
  readonly members: Member[];
}

/** @returns path of the kubeconfig */
async function startCluster(
  options: BackendOptions,
  { dir, start, members }: ClusterStart,
): Promise<string> {
  const kubeconfig = join(dir, 'kubeconfig');
  const { closers } = options;
  if (options.backend === 'sandbox') {
    const args = [`--kubeconfig-out=${kubeconfig}`];
    members.push((await start({ name: 'sandbox-api', args, closers })).member);
    return kubeconfig;
  }
  const cluster = await openControlPlane(options.env, options.binder);
  closers.add('control plane', () => cluster.close());
  const children = await childrenOf(options.pid);
  for (const name of CONTROL_PLANE) {
    const pid = children.get(name);
    if (pid !== undefined) members.push({ name, pid, http: undefined });
  }
  return cluster.kubeconfig;
}
