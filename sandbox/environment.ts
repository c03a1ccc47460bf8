import { createWriteStream } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { unlessAborted } from '#src/runtime/clock.ts';
import type { Closers } from '#src/runtime/closers.ts';
import type { Logger } from '#src/runtime/log.ts';
import { type Child, startChild } from './children.ts';
import { SANDBOX_NODES } from './nodes.ts';

const CLI = fileURLToPath(new URL('cli.js', import.meta.url));
/** Longer than the 25 s that sutler gives the calls under way, twice. */
const STOP_GRACE_MS = 45_000;

export interface EnvironmentOptions {
  readonly dataDir: string;
  /** Folder for sockets. */
  readonly sockets: string;
  readonly apiPort: number;
  readonly driverDelayMs: number;
  /** The sample driver has topology, and a pool on each node. */
  readonly topology: boolean;
  readonly redisUrl: string;
  /** An event sender sends webhooks to ingest. */
  readonly sendsWebhooks: boolean;
  /** Arguments for `all`. */
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stopping: AbortSignal;
  readonly closers: Closers;
  readonly log: Logger;
  readonly onUsageError: (child: string, line: string) => void;
}

/** What was started, and its addresses. */
export interface Environment {
  readonly kubeconfig: string;
  readonly socket: string;
  /** Contains the password, so it must not be printed. */
  readonly redisUrl: string;
  /** By "PROCESS FACT": addresses, pids, the dashboard's login. */
  readonly facts: Readonly<Record<string, string>>;
}

/** Starts the Kubernetes API with its volume binder and scheduler, the sample driver, `sutler all`,
 * and the event sender if there are webhooks, each as a child process. Their output goes to files
 * in the data folder.
 * @returns undefined if a child ends early or the signal aborts */
export async function startEnvironment(
  options: EnvironmentOptions,
): Promise<Environment | undefined> {
  const { dataDir, topology, redisUrl, sendsWebhooks } = options;
  await mkdir(join(dataDir, 'logs'), { recursive: true, mode: 0o700 });
  const kubeconfig = join(dataDir, 'kubeconfig');
  const socket = `unix://${join(options.sockets, 'csi.sock')}`;
  const facts: Record<string, string> = {};
  const start = async (name: string, ...args: readonly string[]): Promise<boolean> => {
    const child = launch(options, name, args);
    const announced = await unlessAborted(child.announced, options.stopping).catch(() => undefined);
    if (announced === undefined) return false;
    for (const [fact, value] of Object.entries(announced))
      facts[name === 'all' ? fact : `${name} ${fact}`] = value;
    if (child.pid !== undefined) facts[`${name} pid`] = String(child.pid);
    return true;
  };
  const api = [`--api-port=${options.apiPort}`, `--kubeconfig-out=${kubeconfig}`, '--scheduler'];
  const driver = [
    `--csi-address=${socket}`,
    `--data-dir=${join(dataDir, 'volumes')}`,
    `--delay-ms=${Math.ceil(options.driverDelayMs)}`,
    ...(topology ? poolArgs() : []),
  ];
  const all = [
    '--dashboard-address=127.0.0.1:0',
    '--http-endpoint=127.0.0.1:0',
    // A pod could not use a volume on another node than the selected one.
    '--strict-topology',
    // There is no pod here that could own the CSIStorageCapacity objects.
    '--capacity-ownerref-level=-1',
    ...(sendsWebhooks ? ['--webhook-address=127.0.0.1:0'] : []),
    ...options.argv,
    `--kubeconfig=${kubeconfig}`,
    `--csi-address=${socket}`,
  ];
  const isUp =
    (await start('sandbox-api', ...api)) &&
    (await start('sandbox-driver', ...driver)) &&
    (await start('all', ...all)) &&
    (!sendsWebhooks ||
      (await start(
        'sandbox-event-sender',
        `--kubeconfig=${kubeconfig}`,
        `--sink=${facts['ingest events']}`,
      )));
  if (!isUp) return undefined;
  return { kubeconfig, socket, redisUrl: redisUrl || `unix://${facts['redis']}`, facts };
}

function poolArgs(): readonly string[] {
  const [first] = SANDBOX_NODES;
  return [
    `--node-id=${first.name}`,
    ...SANDBOX_NODES.map(({ zone, name, size }) => `--pool=${zone}/${name}=${size}`),
  ];
}

function launch(options: EnvironmentOptions, name: string, args: readonly string[]): Child {
  const { redisUrl } = options;
  const file = createWriteStream(join(options.dataDir, 'logs', `${name}.log`), { mode: 0o600 });
  const child = startChild(
    {
      name,
      command: [process.execPath, CLI, name, ...args],
      env: {
        ...options.env,
        // Keeps the processes away from the cluster of the user's KUBECONFIG.
        KUBECONFIG: '',
        SUTLER_KUBECONFIG: '',
        KUBERNETES_SERVICE_HOST: '',
        // Where sutler publishes CSIStorageCapacity objects.
        NAMESPACE: 'default',
        REDIS_URL: redisUrl,
        SUTLER_REDIS_URL: redisUrl,
      },
      output: (text) => file.write(text),
    },
    { log: options.log, onUsageError: options.onUsageError },
  );
  options.closers.add(name, async () => {
    await child.stop(STOP_GRACE_MS);
    file.end();
  });
  return child;
}
