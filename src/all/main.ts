import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { flags as gatewayFlags } from '../csi-gateway/flags.ts';
import { flags as dashboardFlags } from '../dashboard/flags.ts';
import { OwnLeader } from '../election/own-leader.ts';
import { flags as ingestFlags } from '../ingest/flags.ts';
import { start as startIngest } from '../ingest/main.ts';
import { flags as jobsFlags } from '../jobs/flags.ts';
import { start as startJobs } from '../jobs/main.ts';
import { keepRedisServer } from '../redis/server.ts';
import { parseRedisUrl, redisAddress } from '../redis/access.ts';
import { Closers } from '../runtime/closers.ts';
import { messageOf } from '../runtime/error-message.ts';
import { defineFlags, UsageError } from '../runtime/flags.ts';
import { openHttpEndpoint } from '../runtime/http.ts';
import {
  type GivenFlags,
  isLeftBehind,
  OWN_FOLDER,
  OWN_REDIS_SOCKET,
  ownPlaces,
  writeOwnSutler,
} from '../runtime/own-folder.ts';
import { logFlags } from '../runtime/process-flags.ts';
import { runProcess, type Invocation, type ProcessContext } from '../runtime/process.ts';
import { isInUse } from '../runtime/socket-file.ts';
import { ownNode } from '../election/own-node.ts';
import { flags as ownFlags, summary } from './flags.ts';
import { lackOfMemory } from './memory.ts';
import { openOwnDriver } from './own-driver.ts';

/** Every flag that `sutler all` serves. */
export const table = defineFlags({
  ...gatewayFlags,
  ...dashboardFlags,
  ...jobsFlags,
  ...ingestFlags,
  ...ownFlags,
});

type AllContext = ProcessContext<typeof table>;

/** Runs ingest and jobs in one process, in the place of external-provisioner. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'all', summary, table, start });
}

async function start(context: AllContext): Promise<void> {
  const { flags, closers, log } = context;
  const node = checkedNode(context);
  const lack = lackOfMemory(process.constrainedMemory());
  if (lack !== undefined) log.warn(lack);
  const folder = await makeFolder(context);
  closers.add('temporary folder', () => rm(folder, { recursive: true, force: true }));
  const ownLeader = openOwnLeader(context, node);
  // First, so that it connects while Redis starts.
  const driver = callsOwnDriver(context) ? openOwnDriver(context) : undefined;
  const redisUrl = flags.redisUrl === '' ? await startOwnRedis(context, folder) : flags.redisUrl;
  const redis = redisAddress(parseRedisUrl(redisUrl));
  const given = flagsForCommands(context, redisUrl, driver?.address);
  await writeOwnSutler(folder, { pid: context.pid, redis, given });
  // All parts share one HTTP endpoint.
  const values = { ...flags, redisUrl, httpEndpoint: '', metricsAddress: '' };
  const parts = {
    ...(flags.listen.length === 0
      ? {}
      : { 'csi-gateway': (await import('../csi-gateway/main.ts')).start }),
    ingest: startIngest,
    jobs: startJobs,
    ...(flags.dashboardAddress === ''
      ? {}
      : { dashboard: (await import('../dashboard/main.ts')).start }),
  };

  const facts: Record<string, string> = {
    redis,
    ...(driver === undefined ? {} : { driver: driver.address }),
    ...(await openHttpEndpoint(context)),
  };
  const unannounced = new Set(Object.keys(parts));
  const announce = (part: string, ofPart: Readonly<Record<string, string>>): void => {
    for (const [fact, value] of Object.entries(ofPart))
      facts[fact === part ? fact : `${part} ${fact}`] = value;
    unannounced.delete(part);
    if (unannounced.size === 0) context.announce(facts);
  };
  await Promise.all(
    Object.entries(parts).map(([part, startPart]) =>
      startPart(
        {
          ...partContext(context, part),
          flags: values,
          announce: (ofPart) => announce(part, ofPart),
        },
        { leader: ownLeader, driver: driver?.access },
      ),
    ),
  );
}

/** The only node that this process serves, as external-provisioner with --node-deployment.
 * @throws UsageError */
export function checkedNode({ flags, env }: Pick<AllContext, 'flags' | 'env'>): string | undefined {
  const node = ownNode(flags, env);
  if (node === undefined) return undefined;
  if (flags.redisUrl !== '')
    throw new UsageError(
      '--node-deployment: the process of each node starts its own Redis; unset REDIS_URL',
    );
  if (flags.driverConfig !== '')
    throw new UsageError('--node-deployment serves one driver; remove --driver-config');
  return node;
}

/** Whether this process calls its driver directly: unless flags name gateways.
 * @throws UsageError */
export function callsOwnDriver({ flags }: Pick<AllContext, 'flags'>): boolean {
  const { driverConfig, gateway, gatewayService, listen } = flags;
  const namesGateways = gateway.length > 0 || gatewayService !== '';
  if (driverConfig !== '' && (namesGateways || listen.length > 0))
    throw new UsageError(
      '--gateway, --gateway-service and --listen: with --driver-config, name gateways in the file',
    );
  if (listen.length > 0 && !namesGateways)
    throw new UsageError(
      '--listen: this process has to call the same gateway as all workers; give ' +
        '--gateway-service=NAMESPACE/NAME, or --gateway with the address of this gateway',
    );
  return driverConfig === '' && !namesGateways;
}

/** The arguments of this process for commands, without those for the log, with the Redis and the
 * driver that it has chosen. A command calls the driver by its socket. */
function flagsForCommands(
  { given, flags }: AllContext,
  redisUrl: string,
  ownDriver: string | undefined,
): GivenFlags {
  return {
    ...Object.fromEntries([...given].filter(([name]) => !Object.hasOwn(logFlags, name))),
    ...(flags.redisUrl === '' ? { 'redis-url': [redisUrl] } : {}),
    ...(ownDriver === undefined ? {} : { gateway: [ownDriver] }),
  };
}

/** With its own Redis and one driver, jobs asks ingest who leads. Otherwise jobs follows the Lease.
 */
function openOwnLeader({ flags }: AllContext, node?: string): OwnLeader | undefined {
  return flags.redisUrl === '' && flags.driverConfig === '' ? new OwnLeader(node) : undefined;
}

const PREFIX = 'sutler-';

/** Makes a folder that only this user can enter, so its sockets need no password. */
async function makeFolder({ flags: { csiAddress }, env, pid }: AllContext): Promise<string> {
  const places = [...ownPlaces(env), dirname(csiAddress.replace(/^unix:(\/\/)?/, ''))];
  const failures: string[] = [];
  for (const place of places)
    try {
      const folder = await mkdtemp(join(place, PREFIX));
      await removeLeftovers(place, pid);
      return folder;
    } catch (error) {
      failures.push(messageOf(error));
    }
  const fix = 'set TMPDIR to a folder that this process may write to';
  throw new UsageError(`no temporary folder (${failures.join('; ')}): ${fix}`);
}

/** Removes the folders of killed processes, because a container's volumes and its pod's memory
 * outlive it. Skips a place that can't be listed. */
async function removeLeftovers(place: string, pid: number): Promise<void> {
  for (const name of await readdir(place).catch(() => [])) {
    if (!OWN_FOLDER.test(name)) continue;
    const folder = join(place, name);
    const socket = join(folder, OWN_REDIS_SOCKET);
    // The folder of another user can't be read. A folder without a socket may be of a process that
    // starts.
    const isLeft = existsSync(socket) ? !(await isInUse(socket)) : await isLeftBehind(folder, pid);
    if (isLeft) await rm(folder, { recursive: true, force: true }).catch(() => undefined);
  }
}

/** Redis looks after its memory and its timeouts twice a second, not ten times. An idle Redis uses
 * the CPU for little else. A delayed job may run half a second late. */
const OWN_REDIS_SETTINGS = ['hz 2'];

/** Starts a Redis whose data ends with the process. */
async function startOwnRedis({ log, closers }: AllContext, folder: string): Promise<string> {
  const server = await keepRedisServer({ folder, log, settings: OWN_REDIS_SETTINGS });
  closers.add('Redis', () => server.close());
  return server.url;
}

/** As a separate process, a part closes in reverse order what it has opened. */
function partContext(context: AllContext, name: string): Omit<AllContext, 'flags'> {
  const closers = new Closers();
  context.closers.add(name, async () => {
    const [error] = await closers.close();
    if (error !== undefined) throw error;
  });
  return {
    ...context,
    closers,
    log: context.log.child({ part: name }),
    health: context.health.addPart(name),
  };
}
