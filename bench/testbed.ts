import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { createWriteStream } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startRedisServer } from '#src/redis/server.ts';
import { startChild, type Child } from '#src/runtime/children.ts';
import type { Closers } from '#src/runtime/closers.ts';
import type { Logger } from '#src/runtime/log.ts';
import { openControlPlane } from './control-plane.ts';
import { childrenOf } from './proc.ts';

const CLI = fileURLToPath(new URL('../sandbox/cli.js', import.meta.url));
const STOP_GRACE_MS = 30_000;
/** Programs of a real control plane. The kernel cuts their names to 15 letters. */
const CONTROL_PLANE = ['etcd', 'kube-apiserver', 'kube-controller'];

export interface TestbedOptions {
  readonly backend: 'sandbox' | 'real';
  readonly driverDelayMs: number;
  readonly workers: number;
  readonly workerThreads: number;
  /** Empty: no CPU profiles. */
  readonly profileDir: string;
  readonly jobsArgs: readonly string[];
  readonly gatewayArgs: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Pid of this process: the parent of a real control plane's processes. */
  readonly pid: number;
  readonly node: string;
  readonly log: Logger;
  readonly closers: Closers;
  readonly stopping: AbortSignal;
}

/** One process of the testbed. */
export interface Member {
  readonly name: string;
  readonly pid: number;
  /** Address of its metrics; undefined where it has none. */
  readonly http: string | undefined;
}

/** The started processes, ready for claims. */
export interface Testbed {
  readonly kubeconfig: string;
  readonly driver: string;
  readonly redisUrl: string;
  readonly members: readonly Member[];
  readonly logsDir: string;
}

/** Starts a Kubernetes API, driver, Redis, gateway, ingest and jobs, each as a separate process
 * with its files in a temporary folder. */
export async function startTestbed(options: TestbedOptions): Promise<Testbed> {
  const { closers, log } = options;
  const dir = await mkdtemp(join(tmpdir(), 'sutler-bench-'));
  let failed = true;
  const members: Member[] = [];
  closers.add('folder', async () => {
    // After a failed start the logs are kept.
    if (failed && members.length > 0)
      log.warn({ dir }, 'the testbed did not start; its logs are kept');
    else await rm(dir, { recursive: true, force: true });
  });
  const logsDir = join(dir, 'logs');
  await mkdir(logsDir);
  const start = async (
    name: string,
    args: readonly string[],
    env: Readonly<Record<string, string>> = {},
  ): Promise<Facts> => {
    const file = createWriteStream(join(logsDir, `${name}.log`));
    const [process = name] = name.split('#');
    const profile =
      options.profileDir !== '' && ['ingest', 'jobs'].includes(process)
        ? ['--cpu-prof', `--cpu-prof-dir=${options.profileDir}`]
        : [];
    let reject: (error: Error) => void = () => undefined;
    const failure = new Promise<never>((_, rejectFailure) => (reject = rejectFailure));
    failure.catch(() => undefined);
    options.stopping.addEventListener('abort', () => reject(new Error('stopped')), { once: true });
    const child: Child = startChild(
      {
        name,
        command: [options.node, ...profile, CLI, process, '--http-endpoint=127.0.0.1:0', ...args],
        // Keeps every process away from clusters other than the testbed's.
        env: { ...options.env, KUBECONFIG: '', KUBERNETES_SERVICE_HOST: '', ...env },
        output: (text) => file.write(text),
      },
      {
        log,
        onUsageError: () =>
          reject(new Error(`${name} refuses its flags: see ${file.path.toString()}`)),
      },
    );
    closers.add(name, async () => {
      await child.stop(STOP_GRACE_MS);
      file.end();
    });
    const facts = await Promise.race([child.announced, failure]);
    members.push({ name, pid: child.pid ?? 0, http: facts['http'] });
    log.info({ process: name, pid: child.pid }, 'started');
    return facts;
  };

  const kubeconfig = await startCluster(options, { dir, start, members });
  const redis = await startRedisServer({ dataDir: join(dir, 'redis'), log });
  closers.add('redis-server', () => redis.close());
  members.push({ name: 'redis-server', pid: redis.pid, http: undefined });
  const socket = `unix://${join(dir, 'csi.sock')}`;
  const gateway = `unix://${join(dir, 'gateway.sock')}`;
  const { driver = '' } = await start('sandbox-driver', [
    `--csi-address=${socket}`,
    `--data-dir=${join(dir, 'volumes')}`,
    `--delay-ms=${options.driverDelayMs}`,
    '--capacity-gib=1000000',
  ]);
  const gatewayArgs = [`--csi-address=${socket}`, `--listen=${gateway}`, ...options.gatewayArgs];
  await start('csi-gateway', gatewayArgs);
  const common = [`--kubeconfig=${kubeconfig}`, `--gateway=${gateway}`];
  const env = { REDIS_URL: redis.url };
  await start('ingest', [...common, '--leader-election=true'], env);
  for (let i = 1; i <= options.workers; i += 1) {
    await start(
      options.workers === 1 ? 'jobs' : `jobs#${i}`,
      [...common, `--worker-threads=${options.workerThreads}`, ...options.jobsArgs],
      env,
    );
  }
  failed = false;
  return { kubeconfig, driver, redisUrl: redis.url, members, logsDir };
}

type Facts = Readonly<Record<string, string>>;

interface ClusterStart {
  readonly dir: string;
  readonly start: (name: string, args: readonly string[]) => Promise<Facts>;
  readonly members: Member[];
}

/** @returns path of the kubeconfig */
async function startCluster(
  options: TestbedOptions,
  { dir, start, members }: ClusterStart,
): Promise<string> {
  const kubeconfig = join(dir, 'kubeconfig');
  if (options.backend === 'sandbox') {
    await start('sandbox-api', [`--kubeconfig-out=${kubeconfig}`]);
    return kubeconfig;
  }
  const cluster = await openControlPlane(options.env);
  options.closers.add('control plane', () => cluster.close());
  const children = await childrenOf(options.pid);
  for (const name of CONTROL_PLANE) {
    const pid = children.get(name);
    if (pid !== undefined) members.push({ name, pid, http: undefined });
  }
  return cluster.kubeconfig;
}
