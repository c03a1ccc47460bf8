import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadClusterAccess } from '../kube/open-client.ts';
import { keepRedisServer } from '../redis/own-server.ts';
import { parseRedisUrl, redisAddress } from '../redis/access.ts';
import { unlessAborted } from '../runtime/abort.ts';
import { parseListenAddress } from '../runtime/address.ts';
import { startChild, type Child } from '../runtime/children.ts';
import { openDataFolder, type DataFolder } from '../runtime/data-folder.ts';
import { UsageError, withoutFlags } from '../runtime/flags.ts';
import { runProcess, type Invocation, type ProcessContext } from '../runtime/process.ts';
import { flags as table, summary } from './flags.ts';

/** In the order of their start; stopped in reverse order. */
const PROCESSES = ['csi-gateway', 'ingest', 'jobs', 'dashboard'] as const;
const CLI = fileURLToPath(new URL('../cli.js', import.meta.url));
/** The objects of gateway and ingest are short-lived, so they run well with a small young
 * generation, and the gateway with a small heap, and keep little memory after a burst. The same as
 * in k8s/. */
const NODE_FLAGS: Readonly<Record<string, readonly string[]>> = {
  'csi-gateway': ['--max-semi-space-size=1', '--max-old-space-size=192'],
  ingest: ['--max-semi-space-size=2'],
};
/** Flags that `all` sets for its children. What the user gave for them is left out, because the
 * values of a list flag would add up. */
const SET_FOR_CHILDREN = { gateway: table.gateway, listen: table.gateway };
/** Longer than the jobs' default --grace-period. */
const STOP_GRACE_MS = 40_000;

type AllContext = ProcessContext<typeof table>;

/** The parent process of the four others. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'all', summary, table, start });
}

async function start(context: AllContext): Promise<void> {
  const { flags, closers, env, stopping } = context;
  const { port } = parseListenAddress('http-endpoint', flags.httpEndpoint);
  // Only to refuse an unusable kubeconfig before any process is started.
  await loadClusterAccess({ kubeconfig: flags.kubeconfig, master: flags.master, env });
  const folder = await openDataFolder('data-dir', resolve(flags.dataDir), 'all');
  closers.add('data folder', () => folder.close());

  const gateway = flags.driverConfig === '' ? gatewayAddress(flags.gateway, folder) : undefined;
  if (gateway === undefined && flags.gateway.length > 0)
    throw new UsageError('--gateway: with --driver-config, the file names the gateways');
  const redisUrl = flags.redisUrl === '' ? await startOwnRedis(context, folder) : flags.redisUrl;
  const names = PROCESSES.filter((name) => gateway !== undefined || name !== 'csi-gateway');
  const children = names.map((name, index) => {
    const ownPort = port === 0 ? 0 : port + index;
    const httpEndpoint = flags.httpEndpoint.replace(/:\d+$/, `:${ownPort}`);
    return startProcess(context, name, { redisUrl, gateway, httpEndpoint });
  });

  const facts = {
    redis: redisAddress(parseRedisUrl(redisUrl)),
    ...(gateway === undefined ? {} : { gateway }),
    ...(await collectFacts(children, stopping)),
  };
  if (!stopping.aborted) context.announce(facts);
}

function gatewayAddress([given, second]: readonly string[], { sockets }: DataFolder): string {
  if (second !== undefined)
    throw new UsageError(
      '--gateway: all starts one gateway; give one address, or start ingest and jobs separately',
    );
  return given ?? `unix://${join(sockets, 'gateway.sock')}`;
}

async function startOwnRedis({ log, closers }: AllContext, { path }: DataFolder): Promise<string> {
  const server = await keepRedisServer({ dataDir: join(path, 'redis'), log });
  closers.add('redis-server', () => server.close());
  return server.url;
}

interface ChildSettings {
  readonly redisUrl: string;
  /** Undefined with --driver-config, which names the gateways. */
  readonly gateway: string | undefined;
  readonly httpEndpoint: string;
}

function startProcess(
  context: AllContext,
  name: (typeof PROCESSES)[number],
  { redisUrl, gateway, httpEndpoint }: ChildSettings,
): Child {
  const { argv, env, stderr, log, closers } = context;
  const child = startChild(
    {
      name,
      command: [
        process.execPath,
        ...(NODE_FLAGS[name] ?? []),
        CLI,
        name,
        ...withoutFlags(argv, SET_FOR_CHILDREN),
        // Last, so that they override what the user gave.
        ...(gateway === undefined ? [] : [`--listen=${gateway}`, `--gateway=${gateway}`]),
        `--http-endpoint=${httpEndpoint}`,
      ],
      // Not as an argument, which every user of the machine can read: it may contain a password.
      env: keepNeeded(name, { ...env, REDIS_URL: redisUrl, SUTLER_REDIS_URL: redisUrl }),
      output: (text) => stderr.write(text),
    },
    { log, onUsageError: () => context.stop(2) },
  );
  closers.add(name, () => child.stop(STOP_GRACE_MS));
  return child;
}

/** The environment without passwords that this process has no use for. */
function keepNeeded(
  name: (typeof PROCESSES)[number],
  env: AllContext['env'],
): Readonly<Record<string, string | undefined>> {
  const isNeeded = (variable: string): boolean =>
    (name !== 'csi-gateway' || !/^(SUTLER_)?REDIS_/.test(variable)) &&
    (name === 'dashboard' || variable !== 'SUTLER_DASHBOARD_PASSWORD');
  return Object.fromEntries(Object.entries(env).filter(([variable]) => isNeeded(variable)));
}

/** Waits until each child has announced its facts or ended. */
async function collectFacts(
  children: readonly Child[],
  stopping: AbortSignal,
): Promise<Readonly<Record<string, string>>> {
  const facts: Record<string, string> = {};
  for (const child of children) {
    const { name } = child;
    const announced = await unlessAborted(child.announced, stopping).catch(() => undefined);
    for (const [fact, value] of Object.entries(announced ?? {}))
      facts[fact === name ? fact : `${name} ${fact}`] = value;
    if (child.pid !== undefined) facts[`${name} pid`] = String(child.pid);
  }
  return facts;
}
