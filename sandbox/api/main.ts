import { chmod, writeFile } from 'node:fs/promises';
import { UsageError } from '#src/runtime/flags.ts';
import { openHttpEndpoint } from '#src/runtime/http.ts';
import { runProcess, type Invocation, type ProcessContext } from '#src/runtime/process.ts';
import { startBinder } from '../binder/binder.ts';
import { startScheduler } from '../scheduler/scheduler.ts';
import { flags as table, summary } from './flags.ts';
import { startSandboxApi } from './server.ts';

/** `sutler sandbox-api`: the sandbox's API server and volume binder. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'sandbox-api', summary, table, start });
}

async function start(context: ProcessContext<typeof table>): Promise<void> {
  const { flags, log, closers } = context;
  const api = await startSandboxApi({ port: flags.apiPort, log }).catch((cause: unknown) => {
    if (!(cause instanceof Error) || !('code' in cause) || cause.code !== 'EADDRINUSE') throw cause;
    throw new UsageError(
      `--api-port ${flags.apiPort}: the port is in use; stop its owner or choose another`,
      { cause },
    );
  });
  closers.add('API', () => api.close());
  const binder = startBinder({ operations: api.operations, log });
  closers.add('volume binder', () => binder.close());
  if (flags.scheduler) {
    const scheduler = startScheduler({ operations: api.operations, log });
    closers.add('scheduler', () => scheduler.close());
  }
  if (flags.kubeconfigOut !== '') {
    await writeFile(flags.kubeconfigOut, api.kubeconfig(), { mode: 0o600 });
    // writeFile sets the mode of new files only.
    await chmod(flags.kubeconfigOut, 0o600);
  }
  context.announce({ server: api.url, ...(await openHttpEndpoint(context)) });
}
