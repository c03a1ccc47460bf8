import type { Redis } from 'ioredis';
import { type OpenCreation, readOpenCreations } from '../hints/open-creations.ts';
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
import { commandMain, type Means, Refusal, type Result } from './command.ts';
import { uninstall } from './flags.ts';
import { journalPlace } from './installation.ts';

/** Removes what an installation left in the cluster and in Redis, or lists it without --yes. */
export const main = commandMain(uninstall, run);

const UNLINKED_AT_ONCE = 500;

interface Installation {
  readonly redis: Redis;
  readonly prefix: string;
}

async function run(means: Means<typeof uninstall.flags>): Promise<Result> {
  const { redisPrefix: prefix, yes } = means.context.flags;
  const kube = await means.openKube();
  const installation = { redis: await means.openRedis(), prefix };
  await checkStopped(installation);
  const { drivers, journal, marked, foreign } = await findLeases(means, kube, installation);
  const redisKeys = await scanKeys(installation);
  if (yes) {
    await removeLeases(kube, journal, marked);
    for (let from = 0; from < redisKeys.length; from += UNLINKED_AT_ONCE)
      await installation.redis.unlink(...redisKeys.slice(from, from + UNLINKED_AT_ONCE));
  }
  const isEmpty = [drivers, journal, marked, redisKeys].every(({ length }) => length === 0);
  const done = yes
    ? 'removed all that is listed above'
    : 'nothing was changed; run this again with --yes to remove it';
  const lines = [
    `drivers of this Redis and --redis-prefix: ${drivers.join(', ') || 'none'}`,
    `${journal.length} Leases of the journal, ` +
      `annotation ${REDIS_HISTORY} on ${marked.length} Leases, ` +
      `${counted(redisKeys.length, 'key')} in Redis`,
    isEmpty ? 'there is nothing to remove' : done,
    ...foreign.map(describeForeign),
  ];
  const json = {
    drivers,
    journal: journal.map(nameOf),
    leases: marked.map(nameOf),
    leasesLeft: foreign.map(nameOf),
    redisKeys: redisKeys.length,
    isRemoved: yes,
  };
  return { status: 0, lines, json };
}

/** @throws Refusal while a process of the installation is at work */
async function checkStopped({ redis, prefix }: Installation): Promise<void> {
  const [running] = await readProcesses(redis, prefix);
  if (running !== undefined)
    throw new Refusal(
      `${running.process} is still running: ${running.instance} was alive in the last 10 s; stop ` +
        'sutler (kubectl -n sutler scale deploy sutler-ingest sutler-jobs --replicas=0; for sutler ' +
        'all restore its container’s former image), and try again after 10 s; nothing was removed',
    );
}

function describeForeign({ metadata: { namespace = '', name } }: Lease): string {
  return (
    `left: Lease ${namespace}/${name} and its journal, because the Lease names another Redis or ` +
    'other data; if that Redis is gone for good, or has lost its data, run this, and uninstall ' +
    `again: kubectl -n ${namespace} annotate lease ${name} ${REDIS_HISTORY}- ${DRAIN}-`
  );
}

/** Finds the drivers' Leases that name this Redis (marked) or another one (foreign). Leaves out the
 * journals of foreign ones, which another installation may use.
 * @throws Refusal if something that was begun is not finished */
async function findLeases(
  { context }: Means<typeof uninstall.flags>,
  kube: KubeClient,
  { redis, prefix }: Installation,
) {
  const drivers = await listDrivers(redis, prefix);
  const journal: Lease[] = [];
  const marked: Lease[] = [];
  const foreign: Lease[] = [];
  for (const driver of drivers) {
    const place = { redis, prefix, driver };
    const where = await journalPlace(context, redis, driver);
    refuseBegun(await readOpenCreations(kube, where, place, systemClock.nowMs()));
    const { history } = await showHistory(place);
    const { items } = await kube.list<Lease>(leases, { namespace: where.namespace });
    const own = items.find(({ metadata: { name } }) => name === where.lease);
    const named = own?.metadata.annotations?.[REDIS_HISTORY];
    if (own !== undefined && named !== undefined && !named.endsWith(`/${history}`)) {
      foreign.push(own);
      continue;
    }
    if (own !== undefined && named !== undefined) marked.push(own);
    journal.push(...items.filter((lease) => isJournalOf(where, lease)));
  }
  return { drivers, journal, marked, foreign };
}

function refuseBegun(open: readonly OpenCreation[]): void {
  const [first, ...others] = open.filter(({ isBegun }) => isBegun);
  if (first !== undefined)
    throw new Refusal(
      `${others.length + 1} creations are not finished, ${first.object} among them; nothing was ` +
        'removed. Run sutler drain --wait until all are, or drop them with sutler forget',
    );
}

async function scanKeys({ redis, prefix }: Installation): Promise<readonly string[]> {
  // The pattern needs no escapes: Redis gives braces no meaning, and a prefix has no wildcards.
  const pages = redis.scanStream({ match: `${keyPrefix(prefix)}:*`, count: 1000 });
  const keys: string[] = [];
  for await (const page of pages) keys.push(...(page as readonly string[]));
  return keys;
}

/** Deletes the journal, and our annotations on the drivers' Leases: another provisioner may hold
 * these Leases, and writes them every few seconds. */
async function removeLeases(
  kube: KubeClient,
  journal: readonly Lease[],
  marked: readonly Lease[],
): Promise<void> {
  for (const { metadata } of journal)
    await kube.delete(leases, metadata, { preconditions: { uid: metadata.uid } });
  for (const { metadata } of marked) {
    const annotations = { [REDIS_HISTORY]: null, [DRAIN]: null };
    const body = { metadata: { uid: metadata.uid, annotations } };
    await kube.patch(leases, metadata, { type: 'merge', body });
  }
}
