import type { Redis } from 'ioredis';
import { holderOf, leaseName, type Observation, observe, otherHolder } from '../election/lease.ts';
import { leaseRecord } from '../election/kube-lease-store.ts';
import { noteLeftMs } from '../hints/driver-note.ts';
import { readOpenCreations } from '../hints/open-creations.ts';
import { isJournalOf } from '../journal/journal-entry.ts';
import type { KubeClient } from '../kube/client.ts';
import { DRAIN, REDIS_HISTORY } from '../kube/keys.ts';
import type { Lease } from '../kube/objects.ts';
import { leases, nameOf } from '../kube/resources.ts';
import { showHistory } from '../queue/history.ts';
import { readProcesses } from '../redis/processes.ts';
import { listDrivers } from '../queue/queues.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
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

async function run({ context, openRedis, openKube, say }: Means<typeof uninstall.flags>) {
  const { flags, stopping } = context;
  const { redisPrefix: prefix, leaderElectionNamespace: namespace } = flags;
  const kube = await openKube(flags);
  const installation = { kube, redis: await openRedis(), prefix, namespace };
  const found = await findLeftovers(installation);
  const reason =
    (await findWorker(installation)) ??
    (await findIngest(installation, found.drivers, { stopping, say }));
  if (reason !== undefined) throw new Refusal(`${reason}; nothing was removed`);
  if (flags.yes) await remove(installation, found);
  return resultOf(found, flags.yes);
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
  const all = await listLeases(installation);
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

async function listLeases({ kube, namespace }: Installation): Promise<readonly Lease[]> {
  return (await kube.list<Lease>(leases, { namespace })).items;
}

async function scanKeys(redis: Redis, prefix: string): Promise<readonly string[]> {
  // The pattern needs no escapes: braces have no meaning in it, and a prefix has no wildcards.
  const pages = redis.scanStream({ match: `${keyPrefix(prefix)}:*`, count: 1000 });
  const keys: string[] = [];
  for await (const page of pages) keys.push(...(page as readonly string[]));
  return keys;
}

/** Says that a jobs process is at work, and what to do. */
async function findWorker({ redis, prefix }: Installation): Promise<string | undefined> {
  const worker = (await readProcesses(redis, prefix)).find(({ process }) => process === 'jobs');
  return worker && `jobs is still running: ${worker.instance}; ${STOP}, and try again after 10 s`;
}

const POLL_MS = 1_000;

/** Says that a process of sutler holds a Lease of the drivers, or that a leader
 * writes to Redis, and what to do. Waits until a Lease that was not released has expired. */
async function findIngest(
  installation: Installation,
  drivers: readonly string[],
  { stopping, say }: { readonly stopping: AbortSignal; readonly say: (line: string) => void },
): Promise<string | undefined> {
  if (drivers.length === 0) return undefined;
  const { redis, prefix } = installation;
  const names = new Set(drivers.map(leaseName));
  const seen = new Map<string, Observation>();
  let leftBeforeMs = Infinity;
  for (let looks = 1; !stopping.aborted; looks += 1) {
    const found = await listLeases(installation);
    const held = [
      ...heldLeases(
        found.filter(({ metadata }) => names.has(metadata.name)),
        seen,
      ),
    ];
    const renewed = held.find(({ isRenewed }) => isRenewed);
    if (renewed !== undefined) return describeIngest(renewed.line);
    // An ingest writes its note every second, and it expires soon after.
    const left = await Promise.all(drivers.map((driver) => noteLeftMs({ redis, prefix, driver })));
    const leftMs = Math.max(...left);
    if (leftMs > leftBeforeMs) return describeIngest('a leader writes to this Redis');
    leftBeforeMs = leftMs;
    if (held.length === 0 && leftMs === 0 && looks > 1) return undefined;
    if (looks === 1) {
      for (const { line } of held) say(`${line}: waiting until that is renewed or has expired`);
      if (leftMs > 0) say('an ingest was alive a moment ago: waiting whether it still is');
    }
    await systemClock.sleep(POLL_MS, stopping);
  }
  return 'interrupted';
}

/** Which of the Leases a process of sutler holds, as far as is known, and whether it has renewed
 * it since the last look. Another provisioner may hold one: after a change-over back, it does. */
function* heldLeases(found: readonly Lease[], seen: Map<string, Observation>) {
  const nowMs = systemClock.nowMs();
  for (const lease of found) {
    const name = nameOf(lease);
    const before = seen.get(name);
    const now = observe(before, leaseRecord(lease.spec ?? {}), nowMs);
    const holder = holderOf(now, nowMs);
    if (now === undefined || holder === undefined || otherHolder(holder) !== undefined) continue;
    seen.set(name, now);
    const isRenewed = before !== undefined && before !== now;
    yield { line: `${holder} holds the Lease ${name}`, isRenewed };
  }
}

const STOP =
  'stop sutler (kubectl -n sutler scale deploy sutler-ingest sutler-jobs --replicas=0; of sutler ' +
  'all, give its container the image of before)';

function describeIngest(how: string): string {
  return `ingest is still running: ${how}; ${STOP}, and try again`;
}
