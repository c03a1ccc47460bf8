import type { Redis } from 'ioredis';
import { leaseNamespace } from '../election/flags.ts';
import { leaseName } from '../election/lease.ts';
import { troublesOf } from '../explain/report.ts';
import type { JournalPlace } from '../journal/list-journal.ts';
import { listDrivers, namespaceOf } from '../queue/queues.ts';
import { readProcesses } from '../redis/processes.ts';
import { UsageError } from '../runtime/flags.ts';
import { Refusal } from './command.ts';

/* An installation is everything that shares a Redis and a --redis-prefix: the drivers that it
 * serves, and the place of each journal. */

/** What to do if Redis knows no driver. Each replica of `sutler all` has its own Redis. */
export const WHERE_IT_LEADS =
  'start sutler beside a driver, or wait until the driver answers; with several replicas of ' +
  'sutler all, run this in the leader (kubectl get leases names it)';

/** The drivers that this installation serves.
 * @param name  of the only driver to return; '' for all
 * @throws Refusal if it serves none, or not that one */
export async function servedDrivers(
  redis: Redis,
  prefix: string,
  name: string,
): Promise<readonly string[]> {
  const known = await listDrivers(redis, prefix);
  const here = `this Redis and --redis-prefix=${prefix} have`;
  if (known.length === 0) {
    const troubles = troublesOf(await readProcesses(redis, prefix));
    if (troubles.length > 0) throw new Refusal(`no driver is served yet: ${troubles.join('; ')}`);
    throw new Refusal(`${here} no driver: ${WHERE_IT_LEADS}`);
  }
  if (name === '') return known;
  if (known.includes(name)) return [name];
  throw new Refusal(`no sutler serves driver ${name} (${here} ${known.join(', ')})`);
}

/** The driver that --driver-name names; without it, the only one that this installation serves.
 * @throws Refusal as servedDrivers; UsageError if there are several */
export async function chooseDriver(redis: Redis, prefix: string, name: string): Promise<string> {
  const served = await servedDrivers(redis, prefix, name);
  const [only, ...others] = served;
  if (only !== undefined && others.length === 0) return only;
  throw new UsageError(
    `--driver-name is missing: this Redis and --redis-prefix=${prefix} have ${served.join(', ')}`,
  );
}

/** The place of the driver's Lease and its journals: the namespace of --leader-election-namespace,
 * else the namespace that the leader has written to Redis. */
export async function journalPlace(
  context: {
    readonly flags: { readonly leaderElectionNamespace: string; readonly redisPrefix: string };
    readonly env: Readonly<Record<string, string | undefined>>;
  },
  redis: Redis,
  driver: string,
): Promise<JournalPlace> {
  const { flags, env } = context;
  const known = await namespaceOf({ redis, prefix: flags.redisPrefix, driver });
  const namespace = await leaseNamespace(flags.leaderElectionNamespace || known, env);
  return { namespace, lease: leaseName(driver), driver };
}
