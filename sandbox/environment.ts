import { createWriteStream } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { unlessAborted } from '#src/runtime/clock.ts';
import type { Closers } from '#src/runtime/closers.ts';
import type { Logger } from '#src/runtime/log.ts';
import { type Child, startChild } from './children.ts';
import { SANDBOX_NODES } from './nodes.ts';
import {
  receiverArgs,
  senderArgs,
  type WebhookFiles,
  writeWebhookFiles,
} from './webhook-senders.ts';

const CLI = fileURLToPath(new URL('cli.js', import.meta.url));
/** Longer than the 25 s that sutler gives the calls under way, twice. */
const STOP_GRACE_MS = 45_000;

/** Where sutler publishes CSIStorageCapacity objects. */
const CAPACITY_NAMESPACE = 'default';

export interface EnvironmentOptions {
  readonly dataDir: string;
  /** Folder for sockets. */
  readonly sockets: string;
  readonly apiPort: number;
  readonly driverDelayMs: number;
  /** The sample driver has topology, and a pool on each node. */
  readonly topology: boolean;
  /** sutler publishes the driver's capacity. */
  readonly enableCapacity: boolean;
  readonly redisUrl: string;
  /** ingest gets webhooks: from an event sender, and by `registerAdmission` from the API server. */
  readonly sendsWebhooks: boolean;
  /** Arguments for `all`. */
  readonly argv: readonly string[];
  readonly node: string;
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
  /** What the processes announce, by "PROCESS FACT": addresses, pids, the dashboard's login. */
  readonly facts: Readonly<Record<string, string>>;
  /** Where the API server has to send reviews; absent without webhooks. */
  readonly admission?: { readonly url: string; readonly ca: string };
}

/** Starts the Kubernetes API with its volume binder, the sample driver, `sutler all`, and the event
 * sender if there are webhooks, each as a child process. Their output goes to files in the data
 * folder.
 * @returns undefined when the signal aborts meanwhile */
export async function startEnvironment(
  options: EnvironmentOptions,
): Promise<Environment | undefined> {
  const { dataDir } = options;
  await mkdir(join(dataDir, 'logs'), { recursive: true, mode: 0o700 });
  const kubeconfig = join(dataDir, 'kubeconfig');
  const socket = `unix://${join(options.sockets, 'csi.sock')}`;

  const facts: Record<string, string> = {};
  const start = async (
    name: string,
    args: readonly string[],
    env: Readonly<Record<string, string>> = {},
  ): Promise<boolean> => {
    const child = launch(options, name, { args, env });
    const announced = await unlessAborted(child.announced, options.stopping).catch(() => undefined);
    if (announced === undefined) return false;
    for (const [fact, value] of Object.entries(announced))
      facts[name === 'all' ? fact : `${name} ${fact}`] = value;
    if (child.pid !== undefined) facts[`${name} pid`] = String(child.pid);
    return true;
  };

  const driverArgs = [
    `--csi-address=${socket}`,
    `--data-dir=${join(dataDir, 'volumes')}`,
    `--delay-ms=${Math.ceil(options.driverDelayMs)}`,
    ...(options.topology ? topologyArgs() : []),
  ];
  const webhooks = options.sendsWebhooks
    ? await writeWebhookFiles(join(dataDir, 'webhooks'), Date.now())
    : undefined;
  const isUp =
    (await start('sandbox-api', [
      `--api-port=${options.apiPort}`,
      `--kubeconfig-out=${kubeconfig}`,
      '--scheduler',
    ])) &&
    (await start('sandbox-driver', driverArgs)) &&
    (await start(
      'all',
      [...argsOf(options, webhooks), `--kubeconfig=${kubeconfig}`, `--csi-address=${socket}`],
      {
        NAMESPACE: CAPACITY_NAMESPACE,
        REDIS_URL: options.redisUrl,
        SUTLER_REDIS_URL: options.redisUrl,
      },
    )) &&
    (webhooks === undefined ||
      (await start('sandbox-event-sender', [
        `--kubeconfig=${kubeconfig}`,
        ...senderArgs(webhooks, facts['ingest events']),
      ])));
  if (!isUp) return undefined;
  const admission = webhooks && { url: facts['ingest admission'] ?? '', ca: webhooks.ca };
  const redisUrl = options.redisUrl === '' ? `unix://${facts['redis']}` : options.redisUrl;
  return { kubeconfig, socket, redisUrl, facts, ...(admission && { admission }) };
}

/** The arguments of `all`, without addresses of this environment. */
function argsOf(
  { enableCapacity, argv }: EnvironmentOptions,
  webhooks: WebhookFiles | undefined,
): readonly string[] {
  return [
    '--dashboard-address=127.0.0.1:0',
    '--http-endpoint=127.0.0.1:0',
    // A volume on another node than the selected one would be of no use to its pod.
    '--strict-topology',
    // No pod that could own the CSIStorageCapacity objects runs here.
    ...(enableCapacity ? ['--enable-capacity', '--capacity-ownerref-level=-1'] : []),
    ...(webhooks === undefined ? [] : receiverArgs(webhooks)),
    ...argv,
  ];
}

function topologyArgs(): readonly string[] {
  const [first] = SANDBOX_NODES;
  return [
    `--node-id=${first.name}`,
    ...SANDBOX_NODES.map(({ zone, name, size }) => `--pool=${zone}/${name}=${size}`),
  ];
}

function launch(
  options: EnvironmentOptions,
  name: string,
  child: { args: readonly string[]; env: Readonly<Record<string, string>> },
): Child {
  const file = createWriteStream(join(options.dataDir, 'logs', `${name}.log`), { mode: 0o600 });
  const started = startChild(
    {
      name,
      command: [options.node, CLI, name, ...child.args],
      // Keeps the processes away from the cluster of the user's KUBECONFIG.
      env: {
        ...options.env,
        KUBECONFIG: '',
        SUTLER_KUBECONFIG: '',
        KUBERNETES_SERVICE_HOST: '',
        ...child.env,
      },
      output: (text) => file.write(text),
    },
    { log: options.log, onUsageError: options.onUsageError },
  );
  options.closers.add(name, async () => {
    await started.stop(STOP_GRACE_MS);
    file.end();
  });
  return started;
}
