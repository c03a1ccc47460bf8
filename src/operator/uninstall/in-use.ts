import type { Redis } from 'ioredis';
import { otherHolder } from '../../election/identity.ts';
import { leaseRecord } from '../../election/kube-lease-store.ts';
import { holderOf, leaseName, observe, type Observation } from '../../election/lease.ts';
import type { KubeClient } from '../../kube/client.ts';
import type { Lease } from '../../kube/objects.ts';
import { leases } from '../../kube/resources.ts';
import { readHeartbeat } from '../../queue/heartbeat.ts';
import { listQueues } from '../../queue/queues.ts';
import { dataEpochKey } from '../../records/key-names.ts';
import type { Clock } from '../../runtime/clock.ts';

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
