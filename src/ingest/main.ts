import { connectDriver } from '../connections/connect-driver.ts';
import { openConnections } from '../connections/open-connections.ts';
import { openHttpEndpoint } from '../runtime/http.ts';
import { runProcess, type Invocation, type ProcessContext } from '../runtime/process.ts';
import { flags as table, summary } from './flags.ts';
import { addFirstChecks, checkFlags, startDriver } from './start-driver.ts';
import { openNamedWebhooks } from './webhooks/open-named-webhooks.ts';

/** The ingest process. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'ingest', summary, table, start });
}

async function start(context: ProcessContext<typeof table>): Promise<void> {
  checkFlags(context);
  const connections = await openConnections(context, 'ingest', 'sutler-ingest');
  const ofDriver = await connectDriver(context, connections);
  addFirstChecks(context.health);
  context.announce({
    ...(await openHttpEndpoint(context)),
    ...(await openNamedWebhooks(context, connections.link)),
  });
  await startDriver(context, ofDriver);
}
