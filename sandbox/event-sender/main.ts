import { createKubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { openHttpEndpoint } from '#src/runtime/http.ts';
import { type Invocation, type ProcessContext, runProcess } from '#src/runtime/process.ts';
import { version } from '#src/runtime/version.ts';
import { startEventSender } from './event-sender.ts';
import { flags as table, summary } from './flags.ts';

/** `sutler sandbox-event-sender`: the sandbox's stand-in for Knative's ApiServerSource. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'sandbox-event-sender', summary, table, start });
}

async function start(context: ProcessContext<typeof table>): Promise<void> {
  const { flags, env, log, closers } = context;
  if (flags.sink === '') throw new UsageError('--sink is missing: name the URL for the events');
  const access = await loadClusterAccess({ kubeconfig: flags.kubeconfig, env });
  const client = createKubeClient({ access, userAgent: `sutler-event-sender/${version}`, log });
  closers.add('API client', () => client.close());
  const source = access.server.origin;
  const sender = startEventSender({ client, sink: flags.sink, source, clock: systemClock, log });
  closers.add('event sender', () => sender.stop());
  await sender.ready;
  context.announce({ sink: new URL(flags.sink).host, ...(await openHttpEndpoint(context)) });
}
