import {
  connectDriver,
  type Connections,
  type OneProcess,
  openConnections,
} from '../connections/open-connections.ts';
import { serveDrivers } from '../driver-config/driver-set.ts';
import { readDriverConfig } from '../driver-config/read-config.ts';
import { openHttpEndpoint } from '../runtime/http.ts';
import { type Invocation, type ProcessContext, runProcess } from '../runtime/process.ts';
import { openEventSource } from './event-source.ts';
import { flags as table, summary } from './flags.ts';
import type { ObjectSource } from './objects/object-source.ts';
import { addFirstChecks, checkFlags, startDriver } from './start-driver.ts';

type IngestContext = ProcessContext<typeof table>;

/** The ingest process. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'ingest', summary, table, start });
}

/** Opens all parts of ingest; they run until the process closes.
 * @param one  what jobs shares, if it runs in the same process */
export async function start(context: IngestContext, one: OneProcess = {}): Promise<void> {
  if (context.flags.driverConfig !== '') return startSeveral(context);
  checkFlags(context);
  const connections = await openConnections(context, 'ingest', 'sutler-ingest');
  const ofDriver = await connectDriver(context, connections, { own: one.driver });
  const openSource = sourceOpener(context, connections);
  context.health.ready('kubernetes', () => 'waiting for the driver first');
  addFirstChecks(context.health);
  context.announce(await openServers(context, connections));
  await startDriver(context, ofDriver, openSource, one.leader);
}

/** Serves the drivers of --driver-config. */
async function startSeveral(context: IngestContext): Promise<void> {
  const config = await readDriverConfig(context, checkFlags);
  const connections = await openConnections(context, 'ingest', 'sutler-ingest');
  const openSource = sourceOpener(context, connections);
  addFirstChecks(context.health);
  context.announce(await openServers(context, connections));
  serveDrivers(context, config, async (driverContext, name) => {
    addFirstChecks(driverContext.health);
    const ofDriver = await connectDriver(driverContext, connections, { name });
    await startDriver(driverContext, ofDriver, openSource);
  });
}

/** @returns their addresses */
async function openServers(
  context: IngestContext,
  { link }: Connections,
): Promise<Readonly<Record<string, string>>> {
  const { webhookAddress, admissionAddress, redisPrefix: prefix } = context.flags;
  const http = await openHttpEndpoint(context);
  if (webhookAddress === '' && admissionAddress === '') return http;
  // The code of webhooks is loaded only if a flag asks for them.
  const { openWebhooks } = await import('../webhooks/open-webhooks.ts');
  return { ...http, ...(await openWebhooks(context, { link, prefix })) };
}

/** @returns opens the source of all drivers' objects, at its first call */
function sourceOpener(context: IngestContext, connections: Connections): () => ObjectSource {
  let source: ObjectSource | undefined;
  return () => (source ??= openEventSource(context, connections));
}
