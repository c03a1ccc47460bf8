import { leaseNamespace } from '../election/flags.ts';
import { leaseName } from '../election/lease.ts';
import type { JournalPlace } from '../journal/list-journal.ts';

/** Where the journal of a driver is, for a command.
 * @param o.node  of a process that serves one node */
export async function journalPlace(
  {
    flags,
    env,
  }: {
    readonly flags: { readonly leaderElectionNamespace: string };
    readonly env: Readonly<Record<string, string | undefined>>;
  },
  driver: string,
): Promise<JournalPlace> {
  const namespace = await leaseNamespace(flags.leaderElectionNamespace, env);
  // A command beside the driver of one node is about the process of that node.
  return { namespace, lease: leaseName(driver), driver };
}
