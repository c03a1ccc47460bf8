import { systemClock, unlessAborted } from '../runtime/clock.ts';
import { Closers } from '../runtime/closers.ts';
import { messageOf } from '../runtime/error-message.ts';
import { type Flags, type FlagTable, UsageError } from '../runtime/flags.ts';
import type { ProcessContext } from '../runtime/process.ts';
import type { DriverConfig } from './read-config.ts';

/** The context of one driver. If a process serves one driver, it is the process's context. If it
 * serves several, each driver has its own flags, checks and closers, so that one driver that can't
 * start does not stop the others. */
export type DriverContext<T extends FlagTable> = Pick<
  ProcessContext<T>,
  'flags' | 'env' | 'pid' | 'log' | 'metrics' | 'health' | 'closers' | 'stopping'
>;

/** Begins the work for a driver. Adds what it opens to the context's closers, since it is called
 * again later if it throws.
 * @throws UsageError for flags that can't be used now */
type StartDriver<T extends FlagTable> = (
  context: DriverContext<T>,
  driver: string,
) => Promise<void>;

const RETRY_MS = 2_000;

/** Serves the drivers of --driver-config until the process closes.
 * @param retryMs  pause before the next start of a driver whose start failed */
export function serveDrivers<T extends FlagTable>(
  context: ProcessContext<T>,
  config: DriverConfig<T>,
  start: StartDriver<T>,
  retryMs = RETRY_MS,
): void {
  if (config.size === 0)
    context.health.note('driver-config', () => 'the file names no driver: there is nothing to do');
  for (const [name, flags] of config) {
    const ended = serve(context, { name, flags }, start, retryMs);
    context.closers.add(`driver ${name}`, () => ended);
  }
}

/** Serves one driver until the process stops. */
async function serve<T extends FlagTable>(
  context: ProcessContext<T>,
  { name, flags }: { readonly name: string; readonly flags: Flags<T> },
  start: StartDriver<T>,
  retryMs: number,
): Promise<void> {
  const { env, pid, metrics, stopping } = context;
  const log = context.log.child({ driver: name });
  let reported = '';
  while (!stopping.aborted) {
    const closers = new Closers();
    const health = context.health.addGroup(name);
    health.ready('driver', () => 'not started yet');
    try {
      await start({ flags, env, pid, log, metrics, health, closers, stopping }, name);
      await unlessAborted(new Promise(() => undefined), stopping);
    } catch (error) {
      const reason = messageOf(error);
      const cause = error instanceof UsageError ? { reason } : { err: error };
      if (reason !== reported && !stopping.aborted)
        log.warn(cause, 'could not start the driver; trying again');
      reported = reason;
      health.ready('driver', () => `the start failed: ${reason}; trying again`);
    }
    for (const error of await closers.close())
      log.warn({ err: error, cause: error.cause }, 'closing failed');
    await systemClock.sleep(retryMs, stopping);
  }
}
