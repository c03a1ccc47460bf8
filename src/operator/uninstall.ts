import type { Redis } from 'ioredis';
import { leaseName } from '../election/lease.ts';
import { readOpenCreations } from '../hints/open-creations.ts';
import { isJournalOf } from '../journal/journal-entry.ts';
import type { KubeClient } from '../kube/client.ts';
import { DRAIN, REDIS_HISTORY } from '../kube/keys.ts';
import type { Lease } from '../kube/objects.ts';
import { leases, nameOf } from '../kube/resources.ts';
import { showHistory } from '../queue/history.ts';
import { listDrivers } from '../queue/queues.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
import { readProcesses } from '../redis/processes.ts';
import { systemClock } from '../runtime/clock.ts';
import { counted } from '../runtime/printable.ts';
import { type Means, Refusal, type Result, commandMain } from './command.ts';
import { uninstall } from './flags.ts';

/** Removes what an installation left in the cluster and in Redis, or lists it without --yes. */
export const main = commandMain({ name: 'uninstall', ...uninstall }, run);

/** One installation is what shares a Redis and a --redis-prefix. */
interface Installation {
  readonly kube: KubeClient;
  readonly redis: Redis;
  readonly prefix: string;
  /** Of its Leases; '' for all namespaces. */
  readonly namespace: string;
}

interface Leftovers {
  readonly drivers: readonly string[];
  /** The journals of its drivers. */
  readonly journal: readonly Lease[];
  /** Leases that have the history of this Redis in our annotation. */
  readonly leases: readonly Lease[];
  readonly redisKeys: readonly string[];
  /** What has our annotation and is not this installation's, a line each. */
  readonly others: readonly string[];
}

async function run({ context, openRedis, openKube }: Means<typeof uninstall.flags>) {
  const { redisPrefix: prefix, leaderElectionNamespace: namespace, yes } = context.flags;
  const kube = await openKube(context.flags);
  const installation = { kube, redis: await openRedis(), prefix, namespace };
  await checkStopped(installation);
  const found = await findLeftovers(installation);
  if (yes) await remove(installation, found);
  return resultOf(found, yes);
}

function resultOf(found: Leftovers, isRemoved: boolean): Result {
  const { drivers, journal, leases: marked, redisKeys, others } = found;
  const isEmpty = [drivers, journal, marked, redisKeys].every(({ length }) => length === 0);
  const done = isRemoved
    ? 'removed all of it, except for what stays'
    : 'nothing was changed; run this again with --yes to remove it';
  const lines = [
    `drivers of this Redis and --redis-prefix: ${drivers.join(', ') || 'none'}`,
    `${journal.length} Leases of the journal, ` +
      `annotation ${REDIS_HISTORY} on ${marked.length} Leases, ` +
      `${counted(redisKeys.length, 'key')} in Redis`,
    ...others.map((other) => `stays: ${other}`),
    isEmpty ? 'there is nothing to remove' : done,
  ];
  const json = {
    drivers,
    journal: journal.map(nameOf),
    leases: marked.map(nameOf),
    redisKeys: redisKeys.length,
    others,
    isRemoved,
  };
  return { status: 0, lines, json };
}

async function remove({ kube, redis }: Installation, found: Leftovers): Promise<void> {
  for (const { metadata } of found.journal)
    await kube.delete(leases, metadata, { preconditions: { uid: metadata.uid } });
  for (const { metadata } of found.leases) {
    // A patch, since another provisioner that holds the Lease writes it every few seconds.
    const annotations = { [REDIS_HISTORY]: null, [DRAIN]: null };
    const body = { metadata: { uid: metadata.uid, annotations } };
    await kube.patch(leases, metadata, { type: 'merge', body });
  }
  for (let from = 0; from < found.redisKeys.length; from += 500)
    await redis.unlink(...found.redisKeys.slice(from, from + 500));
}

/** Changes nothing.
 * @throws Refusal if something that was begun is not finished */
async function findLeftovers(installation: Installation): Promise<Leftovers> {
  const { redis, prefix } = installation;
  const redisKeys = await scanKeys(redis, prefix);
  const drivers = await listDrivers(redis, prefix);
  const { kube, namespace } = installation;
  const all = (await kube.list<Lease>(leases, { namespace })).items;
  const journal = all.filter((lease) =>
    drivers.some((driver) => isJournalOf({ driver, lease: leaseName(driver) }, lease)),
  );
  await checkNoneBegun(installation, drivers, journal);
  const histories = await Promise.all(
    drivers.map((driver) => showHistory({ redis, prefix, driver })),
  );
  const marked: Lease[] = [];
  const others: string[] = [];
  for (const lease of all) {
    const known = lease.metadata.annotations?.[REDIS_HISTORY];
    if (known === undefined) continue;
    const history = known.slice(known.indexOf('/') + 1);
    if (histories.some((each) => each.history === history)) marked.push(lease);
    else others.push(`Lease ${nameOf(lease)}, of another Redis or --redis-prefix`);
  }
  return { drivers, journal, leases: marked, redisKeys, others };
}

async function checkNoneBegun(
  { kube, redis, prefix }: Installation,
  drivers: readonly string[],
  journal: readonly Lease[],
): Promise<void> {
  const namespaces = new Set(journal.map(({ metadata: { namespace = '' } }) => namespace));
  for (const driver of drivers)
    for (const namespace of namespaces) {
      const place = { namespace, lease: leaseName(driver), driver };
      const nowMs = systemClock.nowMs();
      const open = await readOpenCreations(kube, place, { redis, prefix, driver }, nowMs);
      const begun = open.filter(({ isBegun }) => isBegun);
      if (begun[0] !== undefined)
        throw new Refusal(
          `${begun.length} creations are not finished, ${begun[0].object} among them; nothing was ` +
            'removed. Run sutler drain --wait until none is, or drop them with sutler forget',
        );
    }
}

async function scanKeys(redis: Redis, prefix: string): Promise<readonly string[]> {
  // The pattern needs no escapes: braces have no meaning in it, and a prefix has no wildcards.
  const pages = redis.scanStream({ match: `${keyPrefix(prefix)}:*`, count: 1000 });
  const keys: string[] = [];
  for await (const page of pages) keys.push(...(page as readonly string[]));
  return keys;
}

/** @throws Refusal while a process of the installation is at work */
async function checkStopped({ redis, prefix }: Installation): Promise<void> {
  const [running] = await readProcesses(redis, prefix);
  if (running !== undefined)
    throw new Refusal(
      `${running.process} is still running: ${running.instance} was alive in the last 10 s; stop ` +
        'sutler (kubectl -n sutler scale deploy sutler-ingest sutler-jobs --replicas=0; of sutler ' +
        'all, give its container the image of before), and try again after 10 s; nothing was removed',
    );
}
