import { connectDriver } from '../connections/connect-driver.ts';
import {
  type Connections,
  instanceName,
  openConnections,
} from '../connections/open-connections.ts';
import { openWorkerConnection } from '../queue/worker-connection.ts';
import { openHttpEndpoint } from '../runtime/http.ts';
import { runProcess, type Invocation, type ProcessContext } from '../runtime/process.ts';
import type { Shared } from './base.ts';
import { startCaches } from './caches.ts';
import { flags as table, summary } from './flags.ts';
import { addFirstChecks, checkFlags, startDriver } from './start-driver.ts';

type JobsContext = ProcessContext<typeof table>;

/** The jobs process. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'jobs', summary, table, start });
}

async function start(context: JobsContext): Promise<void> {
  const checked = checkFlags(context);
  const instance = instanceName(context);
  const connections = await openConnections(context, 'jobs', `sutler-records:${instance}`);
  const ofDriver = await connectDriver(context, connections);
  const shared = openShared(context, connections);
  addFirstChecks(context.health);
  context.announce(await openHttpEndpoint(context));
  await startDriver(context, ofDriver, { ...checked, shared, instance });
}

function openShared(
  { flags, closers, log, metrics }: JobsContext,
  { kube, redisAccess }: Connections,
): Shared {
  const { redisUrl, redisPrefix: prefix } = flags;
  const workerConnection = openWorkerConnection({ redisUrl, redisAccess, prefix, log });
  closers.add('worker connection', () => workerConnection.close());
  const caches = startCaches({ client: kube, log, metrics });
  closers.add('caches', () => caches.stop());
  return { workerConnection, caches };
}
