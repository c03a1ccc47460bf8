import type { redisFlags } from '../redis/flags.ts';
import { openJobs } from '../records/open-records.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import type { ProcessContext } from '../runtime/process.ts';
import type { Connections } from './open-connections.ts';

const PERIOD_MS = 2_000;
const NOTE = 'left-drivers';

/** Says in the log and in /readyz which drivers have open volume records although --driver-config
 * does not name them: their volumes are neither finished nor deleted until a process serves the
 * driver again.
 * @param o.served  the drivers that this process serves now
 * @param o.list    those that it may have served, or another process of this installation */
export function reportLeftDrivers(
  context: Pick<ProcessContext<typeof redisFlags>, 'flags' | 'closers' | 'health' | 'log'>,
  { link }: Connections,
  o: {
    readonly served: () => readonly string[];
    readonly list: () => Promise<readonly string[]>;
  },
): void {
  const { flags, closers, health, log } = context;
  let lines: readonly string[] = [];
  health.note(NOTE, () => (lines.length === 0 ? undefined : lines.join('; ')));
  const look = async (): Promise<void> => {
    if (link.trouble !== undefined) return;
    const known = await o.list();
    const left = known.filter((driver) => !o.served().includes(driver));
    const next: string[] = [];
    for (const driver of left) {
      const { size } = await openJobs(link.redis, flags.redisPrefix, driver);
      if (size > 0) next.push(describe(driver, size));
    }
    for (const line of next.filter((each) => !lines.includes(each)))
      log.warn({ reason: line }, 'volume records are open that no driver of the file finishes');
    lines = next;
  };
  const loop = new PollLoop({
    step: look,
    onError: (error) => log.debug({ err: error }, 'could not count open records; trying again'),
    periodMs: PERIOD_MS,
  });
  closers.add('left drivers', () => loop.stop());
}

function describe(driver: string, records: number): string {
  return (
    `driver ${driver} has ${records} open volume records, and --driver-config does not name it: ` +
    'unless another process serves it, put it back until they are closed, or drop each with ' +
    `sutler forget UID --driver-name=${driver}`
  );
}
