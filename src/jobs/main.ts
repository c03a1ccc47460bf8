import {
  connectDriver,
  type Connections,
  instanceName,
  openConnections,
} from '../connections/open-connections.ts';
import { reportLeftDrivers } from '../connections/left-drivers.ts';
import { openDriverConfig, serveDrivers } from '../driver-config/serve-drivers.ts';
import type { SoftState } from '../election/soft-state.ts';
import { openWorkerConnection } from '../queue/connections.ts';
import { openRecordKeys } from '../records/open-keys.ts';
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

/** Opens everything of jobs; it then runs until the process closes.
 * @param softState  where ingest is the same process, and Redis its own */
export async function start(context: JobsProcess, softState?: SoftState): Promise<void> {
  if (context.flags.driverConfig !== '') return startSeveral(context);
  const checked = checkFlags(context);
  const instance = instanceName(context);
  const redisName = `sutler-records:${instance}`;
  const isRedisOwn = softState !== undefined;
  const connections = await openConnections(context, 'jobs', redisName, isRedisOwn);
  const ofDriver = await connectDriver(context, connections);
  const shared = { ...(await openShared(context, connections, softState?.node)), softState };
  addFirstChecks(context.health);
  context.announce(await openHttpEndpoint(context));
  await startWorkers(context, ofDriver, { ...checked, shared, instance });
}

/** Serves the drivers of --driver-config. */
async function startSeveral(context: JobsProcess): Promise<void> {
  const config = await openDriverConfig(context, checkFlags);
  const redisName = `sutler-records:${instanceName(context)}`;
  const connections = await openConnections(context, 'jobs', redisName);
  const shared = await openShared(context, connections);
  context.announce(await openHttpEndpoint(context));
  const removed = new Set<string>();
  const drivers = serveDrivers(config, {
    context,
    table,
    start: async (driverContext, name) => {
      const checked = checkFlags(driverContext);
      addFirstChecks(driverContext.health);
      const ofDriver = await connectDriver(driverContext, connections, { name });
      // Runs of the driver before a change of its flags are those of another instance.
      const instance = instanceName(context);
      await startWorkers(driverContext, ofDriver, { ...checked, shared, instance });
    },
    onRemoved: (name) => void removed.add(name),
  });
  reportLeftDrivers(context, connections, {
    served: () => drivers.names,
    list: () => Promise.resolve([...removed]),
  });
}

async function openShared(
  context: JobsProcess,
  connections: Connections,
  ownNode?: string,
): Promise<SharedParts> {
  const { flags, closers, log, metrics } = context;
  const { kube, redisAccess } = connections;
  const { redisUrl, redisPrefix: prefix } = flags;
  const workerConnection = openWorkerConnection({ redisUrl, redisAccess, prefix, log });
  closers.add('worker connection', () => workerConnection.close());
  const caches = startCaches({ client: kube, log, metrics, ownNode });
  closers.add('caches', () => caches.stop());
  return { workerConnection, caches, recordKeys: await openRecordKeys(context) };
}
