import type { Redis } from 'ioredis';
import { type KubeClient, listPages } from '../../kube/client.ts';
import {
  BETA_STORAGE_PROVISIONER,
  CLAIM_FINALIZER,
  DATA_EPOCH,
  STORAGE_PROVISIONER,
} from '../../kube/keys.ts';
import type { Claim, Lease } from '../../kube/objects.ts';
import { readClusterUid } from '../../kube/open-client.ts';
import { claims, leases } from '../../kube/resources.ts';
import { listDrivers } from '../../queue/queues.ts';
import { dataEpochKey } from '../../records/key-names.ts';
import { openRecords } from '../../records/open-records.ts';
import { clusterKey } from '../../redis/cluster-marker.ts';
import { keyPrefix } from '../../redis/key-prefix.ts';
import { hasFinalizer } from '../../volumes/finalizer-patches.ts';
import { Refusal } from '../command.ts';

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
  for await (const { items: page } of listPages<Claim>(kube, claims))
    found.push(...page.filter((claim) => hasFinalizer(claim, CLAIM_FINALIZER)));
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
