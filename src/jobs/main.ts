import {
  connectDriver,
  type Connections,
  instanceName,
  type OneProcess,
  openConnections,
} from '../connections/open-connections.ts';
import { serveDrivers } from '../driver-config/driver-set.ts';
import { readDriverConfig } from '../driver-config/read-config.ts';
import type { OwnLeader } from '../election/own-leader.ts';
import { openRedis } from '../redis/connection.ts';
import { openHttpEndpoint } from '../runtime/http.ts';
import { type Invocation, type ProcessContext, runProcess } from '../runtime/process.ts';
import { startCaches } from './caches.ts';
import type { SharedParts } from './dependencies.ts';
import { flags as table, summary } from './flags.ts';
import { addFirstChecks, checkFlags, startWorkers } from './start-workers.ts';

type JobsProcess = ProcessContext<typeof table>;

/** The jobs process. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'jobs', summary, table, start });
}

/** Starts everything of jobs, which runs until the process closes.
 * @param one  set if ingest runs in this process */
export async function start(context: JobsProcess, one: OneProcess = {}): Promise<void> {
  if (context.flags.driverConfig !== '') return startSeveral(context);
  checkFlags(context);
  const connections = await openConnections(context, 'jobs', redisName(context));
  const ofDriver = await connectDriver(context, connections, { own: one.driver });
  const shared = openShared(context, connections, one.leader);
  addFirstChecks(context.health);
  context.announce(await openHttpEndpoint(context));
  await startWorkers(context, ofDriver, shared);
}

/** Serves the drivers of --driver-config. */
async function startSeveral(context: JobsProcess): Promise<void> {
  const config = await readDriverConfig(context, checkFlags);
  const connections = await openConnections(context, 'jobs', redisName(context));
  const shared = openShared(context, connections);
  context.announce(await openHttpEndpoint(context));
  serveDrivers(context, config, async (driverContext, name) => {
    addFirstChecks(driverContext.health);
    const ofDriver = await connectDriver(driverContext, connections, { name });
    await startWorkers(driverContext, ofDriver, shared);
  });
}

/** The name in Redis' CLIENT LIST. */
function redisName(context: JobsProcess): string {
  return `sutler-jobs:${instanceName(context)}`;
}

function openShared(
  context: JobsProcess,
  connections: Connections,
  ownLeader?: OwnLeader,
): SharedParts {
  const { flags, closers, log, metrics } = context;
  const { kube, redisAccess: access } = connections;
  const { redisUrl: url } = flags;
  const workerLink = openRedis({ url, access, role: 'worker', name: 'sutler-worker', log });
  closers.add('worker connection', () => workerLink.close());
  const caches = startCaches({ client: kube, log, metrics, ownNode: ownLeader?.node });
  closers.add('caches', () => caches.stop());
  return { workerLink, caches, ownLeader };
}
