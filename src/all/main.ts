import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { lstat, mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { flags as gatewayFlags } from '../csi-gateway/flags.ts';
import { start as startGateway } from '../csi-gateway/main.ts';
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
import { claimSocketPath, isInUse } from '../runtime/socket-file.ts';
import { ownNode } from '../election/own-node.ts';
import { flags as ownFlags, summary } from './flags.ts';

/** Every flag that `sutler all` serves. */
export const table = defineFlags({
  ...gatewayFlags,
  ...dashboardFlags,
  ...jobsFlags,
  ...ingestFlags,
  ...ownFlags,
});

const SOCKET = 'gateway.sock';

type AllContext = ProcessContext<typeof table>;

/** Gateway, ingest and jobs in one process, in the place of external-provisioner. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'all', summary, table, start });
}

async function start(context: AllContext): Promise<void> {
  const { flags, closers } = context;
  const node = checkedNode(context);
  const folder = await makeFolder(context);
  closers.add('temporary folder', () => rm(folder, { recursive: true, force: true }));
  const ownLeader = openOwnLeader(context, node);
  const redisUrl = flags.redisUrl === '' ? await startOwnRedis(context, folder) : flags.redisUrl;
  const listen = await listenAddresses(context, folder);
  const redis = redisAddress(parseRedisUrl(redisUrl));
  const given = flagsForCommands(context, { redisUrl, listen });
  await writeOwnSutler(folder, { pid: context.pid, redis, given });
  const values = {
    ...flags,
    redisUrl,
    listen: [...listen, ...flags.listen],
    ...(listen.length === 0 ? {} : { gateway: listen }),
    // One page for all of them.
    httpEndpoint: '',
    metricsAddress: '',
  };
  const parts = {
    ...(listen.length === 0 ? {} : { 'csi-gateway': startGateway }),
    ingest: startIngest,
    jobs: startJobs,
    // The dashboard's packages take longer to load than all others.
    ...(flags.dashboardAddress === ''
      ? {}
      : { dashboard: (await import('../dashboard/main.ts')).start }),
  };

  const facts: Record<string, string> = {
    redis,
    ...(listen.length === 0 ? {} : { gateway: listen.join(',') }),
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
        ownLeader,
      ),
    ),
  );
}

/** The node that this process serves alone, as external-provisioner does with --node-deployment.
 * @throws UsageError */
export function checkedNode({ flags, env }: Pick<AllContext, 'flags' | 'env'>): string | undefined {
  const node = ownNode(flags, env);
  if (node === undefined) return undefined;
  if (flags.redisUrl !== '')
    throw new UsageError(
      '--node-deployment: a process for each node has a Redis of its own; unset REDIS_URL',
    );
  if (flags.driverConfig !== '')
    throw new UsageError(
      '--node-deployment: give it without --driver-config; it serves one driver',
    );
  return node;
}

/** The arguments but those for the log, with what this process has chosen itself. */
function flagsForCommands(
  { given, flags }: AllContext,
  own: { readonly redisUrl: string; readonly listen: readonly string[] },
): GivenFlags {
  const { redisUrl, listen } = own;
  return {
    ...Object.fromEntries([...given].filter(([name]) => !Object.hasOwn(logFlags, name))),
    ...(flags.redisUrl === '' ? { 'redis-url': [redisUrl] } : {}),
    ...(listen.length === 0 ? {} : { gateway: listen }),
  };
}

/** With a Redis of its own, jobs asks ingest who leads. Of several drivers each has a Lease, which
 * both follow. */
function openOwnLeader({ flags }: AllContext, node?: string): OwnLeader | undefined {
  return flags.redisUrl === '' && flags.driverConfig === '' ? new OwnLeader(node) : undefined;
}

const PREFIX = 'sutler-';

/** Only this user can enter it, so its sockets need no password. */
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
  const fix = 'name a folder that this process may write to by the variable TMPDIR';
  throw new UsageError(`no temporary folder (${failures.join('; ')}): ${fix}`);
}

/** Removes the folders of processes that were killed: a container's volumes, and the memory of its
 * pod, outlive it. A place that can't be listed is left as it is. */
async function removeLeftovers(place: string, pid: number): Promise<void> {
  for (const name of await readdir(place).catch(() => [])) {
    if (!OWN_FOLDER.test(name)) continue;
    const folder = join(place, name);
    const sockets = [OWN_REDIS_SOCKET, SOCKET].map((socket) => join(folder, socket));
    // Another user's can't be read; one that has no socket yet is that of a process that starts.
    const found = sockets.filter((socket) => existsSync(socket));
    const used = await Promise.all(found.map(isInUse));
    const isLeft = found.length > 0 ? !used.includes(true) : await isLeftBehind(folder, pid);
    if (isLeft) await rm(folder, { recursive: true, force: true }).catch(() => undefined);
  }
}

/** Starts a Redis whose data ends with the process. */
async function startOwnRedis({ log, closers }: AllContext, folder: string): Promise<string> {
  const server = await keepRedisServer({ folder, log });
  closers.add('Redis', () => server.close());
  return server.url;
}

/** Where the gateway listens; nowhere with --driver-config, which names gateways that run
 * elsewhere.
 * @throws UsageError */
async function listenAddresses(
  { flags: { csiAddress, driverConfig, gateway, redisUrl }, closers }: AllContext,
  folder: string,
): Promise<readonly string[]> {
  if (driverConfig !== '' && gateway.length > 0)
    throw new UsageError('--gateway: with --driver-config, the file names the gateways');
  if (gateway.length > 1)
    throw new UsageError('--gateway: all has one gateway; give one address, or run them apart');
  if (driverConfig !== '') return [];
  if (gateway.length > 0) return gateway;
  const lasting = redisUrl === '' ? undefined : await openLastingFolder(csiAddress);
  if (lasting !== undefined)
    closers.add('folder of the gateway', () => rm(lasting, { recursive: true, force: true }));
  return [`unix://${join(lasting ?? folder, SOCKET)}`];
}

/** Opens a folder for the gateway's socket that has the same path after a restart: Redis names the
 * active gateway by its address, and ingest leaves one that is gone only when none of its calls can
 * still be under way.
 * @returns undefined if another user has that folder, or another process listens there */
async function openLastingFolder(csiAddress: string): Promise<string | undefined> {
  const id = createHash('sha256').update(`${hostname()} ${csiAddress}`).digest('hex').slice(0, 16);
  const folder = join(tmpdir(), `sutler-${id}`);
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const stats = await lstat(folder);
    const isOurs = stats.isDirectory() && stats.uid === process.getuid?.();
    if (!isOurs || (stats.mode & 0o077) !== 0) return undefined;
    await claimSocketPath('--gateway', join(folder, SOCKET));
    return folder;
  } catch {
    return undefined;
  }
}

/** A part closes what it has opened in reverse order, as a process of its own does. */
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
