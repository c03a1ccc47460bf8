import { type electionFlags, leaseNamespace } from '../election/flags.ts';
import { leaseName } from '../election/lease.ts';
import { listJournal } from '../journal/list-journal.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import { counted } from '../runtime/printable.ts';
import type { ProcessContext } from '../runtime/process.ts';
import type { Connections } from './open-connections.ts';

const PERIOD_MS = 60_000;
const NOTE = 'left-drivers';

/** Says in the log and in /readyz which drivers have claims in the journal although --driver-config
 * does not name them: their volumes are neither finished nor deleted until a process serves the
 * driver again.
 * @param o.namespace  of the Leases, as --leader-election-namespace says
 * @param o.served     the drivers that this process serves now
 * @param o.list       those that it may have served, or another process of this installation */
export function reportLeftDrivers(
  {
    closers,
    env,
    health,
    log,
  }: Pick<ProcessContext<typeof electionFlags>, 'closers' | 'env' | 'health' | 'log'>,
  { kube }: Pick<Connections, 'kube'>,
  o: {
    readonly namespace: string;
    readonly served: () => readonly string[];
    readonly list: () => Promise<readonly string[]>;
  },
): void {
  let lines: readonly string[] = [];
  health.note(NOTE, () => (lines.length === 0 ? undefined : lines.join('; ')));
  const look = async (): Promise<void> => {
    const namespace = await leaseNamespace(o.namespace, env);
    const left = (await o.list()).filter((driver) => !o.served().includes(driver));
    const next: string[] = [];
    for (const driver of left) {
      const place = { namespace, lease: leaseName(driver), driver };
      const { length } = await listJournal(kube, place);
      if (length > 0) next.push(describe(driver, length));
    }
    for (const line of next.filter((each) => !lines.includes(each)))
      log.warn({ reason: line }, 'claims are in the journal that no driver of the file finishes');
    lines = next;
  };
  const loop = new PollLoop({
    step: look,
    onError: (error) => log.debug({ err: error }, 'could not read the journal; trying again'),
    periodMs: PERIOD_MS,
  });
  closers.add('left drivers', () => loop.stop());
}

function describe(driver: string, claims: number): string {
  return (
    `driver ${driver} has ${counted(claims, 'claim')} in the journal, ` +
    'and --driver-config does not name it: unless another process serves it, ' +
    'put it back until they are finished'
  );
}
