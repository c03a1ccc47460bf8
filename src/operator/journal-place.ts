import type { Redis } from 'ioredis';
import { leaseNamespace } from '../election/flags.ts';
import { leaseName } from '../election/lease.ts';
import type { JournalPlace } from '../journal/list-journal.ts';
import { listQueues } from '../queue/queues.ts';

/** Where the driver's Lease and its journals are, for a command: in the namespace of
 * --leader-election-namespace, else in that which the leader has told Redis. */
export async function journalPlace(
  {
    flags,
    env,
  }: {
    readonly flags: { readonly leaderElectionNamespace: string; readonly redisPrefix: string };
    readonly env: Readonly<Record<string, string | undefined>>;
  },
  redis: Redis,
  driver: string,
): Promise<JournalPlace> {
  const queues = await listQueues(redis, flags.redisPrefix);
  const known = queues.find((queue) => queue.driver === driver)?.namespace ?? '';
  const namespace = await leaseNamespace(flags.leaderElectionNamespace || known, env);
  return { namespace, lease: leaseName(driver), driver };
}
