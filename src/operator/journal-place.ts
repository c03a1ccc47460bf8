import { leaseNamespace } from '../election/flags.ts';
import { leaseName } from '../election/lease.ts';
import type { JournalPlace } from '../journal/list-journal.ts';

/** Where the journals of a driver are, for a command. */
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
  return { namespace, lease: leaseName(driver), driver };
}
