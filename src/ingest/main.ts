import { connectDriver } from '../connections/connect-driver.ts';
import { type Connections, openConnections } from '../connections/open-connections.ts';
import { openProducerConnection } from '../queue/producer-connection.ts';
import { openHttpEndpoint } from '../runtime/http.ts';
import { runProcess, type Invocation, type ProcessContext } from '../runtime/process.ts';
import type { Shared } from './base.ts';
import { flags as table, summary } from './flags.ts';
import { addFirstChecks, checkFlags, startDriver } from './start-driver.ts';

type IngestContext = ProcessContext<typeof table>;

/** The ingest process. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'ingest', summary, table, start });
}

async function start(context: IngestContext): Promise<void> {
  checkFlags(context);
  const connections = await openConnections(context, 'ingest', 'sutler-ingest');
  const ofDriver = await connectDriver(context, connections);
  const shared = openShared(context, connections);
  addFirstChecks(context.health);
  context.announce(await openHttpEndpoint(context));
  await startDriver(context, ofDriver, shared);
}

function openShared(
  { flags, closers, health, log }: IngestContext,
  { link, redisAccess }: Connections,
): Shared {
  const { redisUrl, redisPrefix: prefix } = flags;
  const producerConnection = openProducerConnection({ redisUrl, redisAccess, prefix, log });
  closers.add('producer connection', () => producerConnection.close());
  health.ready('redis', () => producerConnection.trouble ?? link.trouble ?? link.refusal);
  return { producerConnection };
}
