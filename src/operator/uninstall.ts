import type { Redis } from 'ioredis';
import { holderOf, leaseName, type Observation, observe, otherHolder } from '../election/lease.ts';
import { leaseRecord } from '../election/kube-lease-store.ts';
import { type KubeClient, listAll } from '../kube/client.ts';
import {
  BETA_STORAGE_PROVISIONER,
  CLAIM_FINALIZER,
  DATA_EPOCH,
  DATA_EPOCH_SEQUENCE,
  STORAGE_PROVISIONER,
} from '../kube/keys.ts';
import type { Claim, Lease } from '../kube/objects.ts';
import { readClusterUid } from '../kube/open-client.ts';
import { claims, leases } from '../kube/resources.ts';
import { readHeartbeat } from '../queue/heartbeat.ts';
import { listDrivers, listQueues } from '../queue/queues.ts';
import { dataEpochKey } from '../records/key-names.ts';
import { openRecords } from '../records/open-records.ts';
import { clusterKey } from '../redis/cluster-marker.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
import { type Clock, systemClock } from '../runtime/clock.ts';
import type { Invocation } from '../runtime/process.ts';
import { hasFinalizer, removeFinalizer } from '../volumes/finalizer-patches.ts';
import { type Means, Refusal, type Result, runCommand } from './command.ts';
import { uninstall } from './flags.ts';

/** Removes what an installation left in the cluster and in Redis, or lists it without --yes. */
export function main(invocation: Invocation): Promise<void> {
  return runCommand(invocation, { name: 'uninstall', ...uninstall }, run);
}

async function run({ context, openRedis, openKube, say }: Means<typeof uninstall.flags>) {
  const { flags, stopping } = context;
  const place = { prefix: flags.redisPrefix, namespace: flags.leaderElectionNamespace };
  const kube = await openKube(flags);
  const redis = await openRedis();
  const found = await findLeftovers({ kube, redis }, place);
  const means = { kube, redis, clock: systemClock, stopping, say };
  const reason = await whyInUse(means, { ...place, drivers: found.drivers });
  if (reason !== undefined) throw new Refusal(`${reason}; nothing was removed`);
  if (flags.yes) await remove(kube, redis, found);
  return resultOf(found, flags.yes);
}

function resultOf(found: Leftovers, isRemoved: boolean): Result {
  const nameOf = ({ metadata: { namespace, name } }: Claim | Lease): string =>
    `${namespace}/${name}`;
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

async function remove(kube: KubeClient, redis: Redis, found: Leftovers): Promise<void> {
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

/** What an installation left. One installation is what shares a Redis and a --redis-prefix. */
export interface Leftovers {
  /** Its drivers. */
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

interface Clients {
  readonly kube: KubeClient;
  readonly redis: Redis;
}

/** Finds what is this installation's. Changes nothing.
 * @param place.namespace  of the Leases; '' for all
 * @throws Refusal if volume records are open, or if Redis belongs to another cluster */
export async function findLeftovers(
  { kube, redis }: Clients,
  { prefix, namespace }: { readonly prefix: string; readonly namespace: string },
): Promise<Leftovers> {
  await checkCluster({ kube, redis }, prefix);
  const redisKeys = await scanKeys(redis, prefix);
  const drivers = await driversOf(redis, prefix, redisKeys);
  await checkNoneOpen(redis, prefix, drivers);
  const ids = new Set<string>();
  for (const driver of drivers) {
    const id = await redis.hget(dataEpochKey(prefix, driver), 'epoch');
    if (id !== null) ids.add(id);
  }
  const marked = await listMarkedLeases(kube, namespace);
  const isOurs = (lease: Lease): boolean => ids.has(lease.metadata.annotations?.[DATA_EPOCH] ?? '');
  const withFinalizer = await listClaimsWithFinalizer(kube);
  const isServed = (claim: Claim): boolean => drivers.includes(driverOf(claim));
  return {
    drivers,
    claims: withFinalizer.filter(isServed),
    leases: marked.filter(isOurs),
    redisKeys,
    others: [
      ...marked
        .filter((lease) => !isOurs(lease))
        .map(
          ({ metadata: { name, namespace: of } }) =>
            `Lease ${of}/${name}, of another Redis or --redis-prefix`,
        ),
      ...withFinalizer
        .filter((claim) => !isServed(claim))
        .map(
          (claim) =>
            `claim ${claim.metadata.namespace}/${claim.metadata.name}, ` +
            `of driver ${driverOf(claim) || '(none)'}`,
        ),
    ],
  };
}

/** @throws Refusal */
async function checkCluster({ kube, redis }: Clients, prefix: string): Promise<void> {
  const [owner, uid] = await Promise.all([redis.get(clusterKey(prefix)), readClusterUid(kube)]);
  if (owner !== null && uid !== undefined && owner !== uid)
    throw new Refusal(
      `this Redis and --redis-prefix=${prefix} belong to another cluster (its kube-system has the ` +
        `UID ${owner}, that of --kubeconfig has ${uid}): correct one of them; nothing was removed`,
    );
}

/** @throws Refusal */
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

function driverOf({ metadata: { annotations = {} } }: Claim): string {
  return annotations[STORAGE_PROVISIONER] ?? annotations[BETA_STORAGE_PROVISIONER] ?? '';
}

async function listClaimsWithFinalizer(kube: KubeClient): Promise<readonly Claim[]> {
  const found: Claim[] = [];
  for await (const claim of listAll<Claim>(kube, claims))
    if (hasFinalizer(claim, CLAIM_FINALIZER)) found.push(claim);
  return found;
}

async function listMarkedLeases(kube: KubeClient, namespace: string): Promise<readonly Lease[]> {
  const page = await kube.list<Lease>(leases, namespace === '' ? {} : { namespace });
  return page.items.filter(({ metadata }) => metadata.annotations?.[DATA_EPOCH] !== undefined);
}

async function scanKeys(redis: Redis, prefix: string): Promise<readonly string[]> {
  // The pattern needs no escapes: braces have no meaning in it, and a prefix has no wildcards.
  const pages = redis.scanStream({ match: `${keyPrefix(prefix)}:*`, count: 1000 });
  const keys: string[] = [];
  for await (const page of pages) keys.push(...(page as readonly string[]));
  return keys;
}

interface InUseMeans {
  readonly kube: Pick<KubeClient, 'list'>;
  readonly redis: Redis;
  readonly clock: Clock;
  readonly stopping: AbortSignal;
  readonly say: (line: string) => void;
}

interface Place {
  readonly prefix: string;
  readonly namespace: string;
  readonly drivers: readonly string[];
}

/** A worker writes its heartbeat every second. */
const WORKER_GONE_MS = 10_000;
const POLL_MS = 1_000;
/** A leader advances the sequence every second, also with --leader-election=false. */
const LEAST_LOOKS = 3;

/** Why this installation is still at work, and what to do; undefined if it has ended: no worker has
 * written a heartbeat lately, no process of sutler holds a Lease of the drivers, and no leader
 * advances the sequence. Waits until a Lease that was not released has expired. */
export async function whyInUse(means: InUseMeans, place: Place): Promise<string | undefined> {
  const { clock, stopping, say } = means;
  const workers = await describeWorkers(means, place);
  if (workers !== undefined) return workers;
  const sequences = await readSequences(means, place);
  const seen = new Map<string, Observation>();
  for (let looks = 1; !stopping.aborted; looks += 1) {
    const { holding, renewed } = await lookAtLeases(means, place, seen);
    if (renewed !== undefined) return describeIngest(renewed);
    if ((await readSequences(means, place)) !== sequences)
      return describeIngest('a leader writes to this Redis');
    if (holding.length === 0 && looks > LEAST_LOOKS) return undefined;
    if (looks === 1)
      for (const each of holding) say(`${each}: waiting until that is renewed or has expired`);
    await clock.sleep(POLL_MS, stopping);
  }
  return 'interrupted';
}

/** Which processes of sutler hold a Lease of the drivers, as far as is known, and which of them has
 * renewed it since the last look. Another provisioner may hold one: after a change-over back to it,
 * it does. */
async function lookAtLeases(
  means: InUseMeans,
  place: Place,
  seen: Map<string, Observation>,
): Promise<{ readonly holding: readonly string[]; readonly renewed: string | undefined }> {
  const nowMs = means.clock.nowMs();
  const holding: string[] = [];
  let renewed: string | undefined;
  for (const { metadata, spec } of await listLeases(means, place)) {
    const lease = `${metadata.namespace}/${metadata.name}`;
    const before = seen.get(lease);
    const now = observe(before, leaseRecord(spec ?? {}), nowMs);
    const holder = holderOf(now, nowMs);
    if (now === undefined || holder === undefined || otherHolder(holder) !== undefined) continue;
    seen.set(lease, now);
    holding.push(`${holder} holds the Lease ${lease}`);
    if (before !== undefined && before !== now) renewed = holding.at(-1);
  }
  return { holding, renewed };
}

async function describeWorkers(
  { redis }: InUseMeans,
  { prefix }: Place,
): Promise<string | undefined> {
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

function describeIngest(how: string): string {
  return (
    `ingest is still running: ${how}; stop it ` +
    '(kubectl -n sutler scale deploy sutler-ingest --replicas=0) and try again'
  );
}

async function listLeases(
  { kube }: InUseMeans,
  { namespace, drivers }: Place,
): Promise<readonly Lease[]> {
  const names = new Set(drivers.map(leaseName));
  const page = await kube.list<Lease>(leases, namespace === '' ? {} : { namespace });
  return page.items.filter(({ metadata }) => names.has(metadata.name));
}

async function readSequences({ redis }: InUseMeans, { prefix, drivers }: Place): Promise<string> {
  const read = drivers.map((driver) => redis.hget(dataEpochKey(prefix, driver), 'beat'));
  return (await Promise.all(read)).join();
}
