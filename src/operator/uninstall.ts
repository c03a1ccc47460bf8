import type { Redis } from 'ioredis';
import { holderOf, leaseName, type Observation, observe, otherHolder } from '../election/lease.ts';
import { leaseRecord } from '../election/kube-lease-store.ts';
import { type KubeClient, listAll } from '../kube/client.ts';
import { CLAIM_FINALIZER, DATA_EPOCH, DATA_EPOCH_SEQUENCE } from '../kube/keys.ts';
import type { Claim, Lease } from '../kube/objects.ts';
import { readClusterUid } from '../kube/open-client.ts';
import { claims, leases, nameOf } from '../kube/resources.ts';
import { readHeartbeat } from '../queue/heartbeat.ts';
import { listDrivers, listQueues } from '../queue/queues.ts';
import { dataEpochKey } from '../records/key-names.ts';
import { openRecords } from '../records/open-records.ts';
import { clusterKey } from '../redis/cluster-marker.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
import { systemClock } from '../runtime/clock.ts';
import { provisionerOf } from '../volumes/eligibility.ts';
import { hasFinalizer, removeFinalizer } from '../volumes/finalizer-patches.ts';
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
  /** Claims of its drivers with our finalizer: only the installation that serves a driver adds it.
   */
  readonly claims: readonly Claim[];
  /** Leases that have the id of this Redis' data in our annotation. */
  readonly leases: readonly Lease[];
  readonly redisKeys: readonly string[];
  /** What has our finalizer or annotation and is not this installation's, a line each. */
  readonly others: readonly string[];
}

async function run({ context, openRedis, openKube, say }: Means<typeof uninstall.flags>) {
  const { flags, stopping } = context;
  const { redisPrefix: prefix, leaderElectionNamespace: namespace } = flags;
  const kube = await openKube(flags);
  const installation = { kube, redis: await openRedis(), prefix, namespace };
  await checkCluster(installation);
  const found = await findLeftovers(installation);
  const reason =
    (await findWorker(installation)) ??
    (await findIngest(installation, found.drivers, { stopping, say }));
  if (reason !== undefined) throw new Refusal(`${reason}; nothing was removed`);
  if (flags.yes) await remove(installation, found);
  return resultOf(found, flags.yes);
}

function resultOf(found: Leftovers, isRemoved: boolean): Result {
  const { drivers, claims: ours, leases: marked, redisKeys, others } = found;
  const isEmpty = [drivers, ours, marked, redisKeys].every(({ length }) => length === 0);
  const done = isRemoved
    ? 'removed all of it, except for what stays'
    : 'nothing was changed; run this again with --yes to remove it';
  const lines = [
    `drivers of this Redis and --redis-prefix: ${drivers.join(', ') || 'none'}`,
    `finalizer ${CLAIM_FINALIZER} on ${ours.length} claims, ` +
      `annotation ${DATA_EPOCH} on ${marked.length} Leases, ` +
      `${redisKeys.length} keys in Redis`,
    ...others.map((other) => `stays: ${other}`),
    isEmpty ? 'there is nothing to remove' : done,
  ];
  const json = {
    drivers,
    claims: ours.map(nameOf),
    leases: marked.map(nameOf),
    redisKeys: redisKeys.length,
    others,
    isRemoved,
  };
  return { status: 0, lines, json };
}

async function remove({ kube, redis }: Installation, found: Leftovers): Promise<void> {
  for (const { metadata } of found.claims) {
    const change = removeFinalizer(metadata, CLAIM_FINALIZER);
    const body = { metadata: { uid: metadata.uid, ...change?.patch } };
    await kube.patch(claims, metadata, { type: 'strategic', body });
  }
  for (const { metadata } of found.leases) {
    // A patch, since another provisioner that holds the Lease writes it every few seconds.
    const annotations = { [DATA_EPOCH]: null, [DATA_EPOCH_SEQUENCE]: null };
    const body = { metadata: { uid: metadata.uid, annotations } };
    await kube.patch(leases, metadata, { type: 'merge', body });
  }
  for (let from = 0; from < found.redisKeys.length; from += 500)
    await redis.unlink(...found.redisKeys.slice(from, from + 500));
}

/** @throws Refusal if Redis belongs to another cluster */
async function checkCluster({ kube, redis, prefix }: Installation): Promise<void> {
  const [owner, uid] = await Promise.all([redis.get(clusterKey(prefix)), readClusterUid(kube)]);
  if (owner !== null && uid !== undefined && owner !== uid)
    throw new Refusal(
      `this Redis and --redis-prefix=${prefix} belong to another cluster (its kube-system has the ` +
        `UID ${owner}, that of --kubeconfig has ${uid}): correct one of them; nothing was removed`,
    );
}

/** Changes nothing.
 * @throws Refusal if volume records are open */
async function findLeftovers(installation: Installation): Promise<Leftovers> {
  const { kube, redis, prefix } = installation;
  const redisKeys = await scanKeys(redis, prefix);
  const drivers = await driversOf(redis, prefix, redisKeys);
  await checkNoneOpen(redis, prefix, drivers);
  const ids = await Promise.all(
    drivers.map((driver) => redis.hget(dataEpochKey(prefix, driver), 'epoch')),
  );
  const found: { claims: Claim[]; leases: Lease[] } = { claims: [], leases: [] };
  const others: string[] = [];
  for (const lease of await listLeases(installation)) {
    const id = lease.metadata.annotations?.[DATA_EPOCH];
    if (id === undefined) continue;
    if (ids.includes(id)) found.leases.push(lease);
    else others.push(`Lease ${nameOf(lease)}, of another Redis or --redis-prefix`);
  }
  for await (const claim of listAll<Claim>(kube, claims)) {
    if (!hasFinalizer(claim, CLAIM_FINALIZER)) continue;
    const driver = provisionerOf(claim) ?? '';
    if (drivers.includes(driver)) found.claims.push(claim);
    else others.push(`claim ${nameOf(claim)}, of driver ${driver || '(none)'}`);
  }
  return { drivers, ...found, redisKeys, others };
}

async function checkNoneOpen(
  redis: Redis,
  prefix: string,
  drivers: readonly string[],
): Promise<void> {
  const lists = drivers.map((driver) => openRecords(redis, prefix, driver));
  const open = (await Promise.all(lists)).flat();
  if (open[0] !== undefined)
    throw new Refusal(
      `${open.length} volume records are open, ${open[0].object} among them; nothing was removed. ` +
        'Run sutler drain --wait until none is, or drop them with sutler forget',
    );
}

async function driversOf(
  redis: Redis,
  prefix: string,
  keys: readonly string[],
): Promise<readonly string[]> {
  const before = dataEpochKey(prefix, '');
  const named = keys.filter((key) => key.startsWith(before)).map((key) => key.slice(before.length));
  return [...new Set([...(await listDrivers(redis, prefix)), ...named])].sort();
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

/** A worker writes its heartbeat every second. */
const WORKER_GONE_MS = 10_000;

/** Says that a worker has written a heartbeat lately, and what to do. */
async function findWorker({ redis, prefix }: Installation): Promise<string | undefined> {
  for (const { name } of await listQueues(redis, prefix)) {
    const ageMs = await readHeartbeat(redis, { prefix, queue: name });
    if (ageMs !== undefined && ageMs < WORKER_GONE_MS)
      return (
        `jobs is still running: a worker of the queue ${name} was alive ${Math.ceil(ageMs / 1000)} s ` +
        'ago; stop ingest and jobs (kubectl -n sutler scale deploy sutler-ingest sutler-jobs ' +
        `--replicas=0) and try again after ${WORKER_GONE_MS / 1000} s`
      );
  }
  return undefined;
}

const POLL_MS = 1_000;
/** A leader advances the sequence every second, also with --leader-election=false. */
const LEAST_LOOKS = 3;

/** Says that a process of sutler holds a Lease of the drivers, or that a leader advances the
 * sequence, and what to do. Waits until a Lease that was not released has expired. */
async function findIngest(
  installation: Installation,
  drivers: readonly string[],
  { stopping, say }: { readonly stopping: AbortSignal; readonly say: (line: string) => void },
): Promise<string | undefined> {
  if (drivers.length === 0) return undefined;
  const names = new Set(drivers.map(leaseName));
  const sequences = await readSequences(installation, drivers);
  const seen = new Map<string, Observation>();
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
    if ((await readSequences(installation, drivers)) !== sequences)
      return describeIngest('a leader writes to this Redis');
    if (held.length === 0 && looks > LEAST_LOOKS) return undefined;
    if (looks === 1)
      for (const { line } of held) say(`${line}: waiting until that is renewed or has expired`);
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

function describeIngest(how: string): string {
  return (
    `ingest is still running: ${how}; stop it ` +
    '(kubectl -n sutler scale deploy sutler-ingest --replicas=0) and try again'
  );
}

async function readSequences(
  { redis, prefix }: Installation,
  drivers: readonly string[],
): Promise<string> {
  const read = drivers.map((driver) => redis.hget(dataEpochKey(prefix, driver), 'beat'));
  return (await Promise.all(read)).join();
}
