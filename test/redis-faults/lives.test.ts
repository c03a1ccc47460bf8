import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { describe, it } from 'node:test';
import type { Redis } from 'ioredis';
import { Code } from '#src/csi/status.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import { seeded } from '../harness/seeded.ts';
import { until } from '../harness/until.ts';

/** Claims that live at a time. */
const AT_ONCE = 100;
/** A claim that is not bound by then is deleted as it is. */
const LONGEST_WAIT_MS = 3_000;
const BY_HAND = 0.05;

/** An item of docs/redis.md. */
interface Row {
  readonly key: string;
  readonly pattern: RegExp;
  /** It has no expiry: there is one for each driver, queue or installation. */
  readonly isKept: boolean;
}

interface Remains {
  /** Keys that no row names. */
  readonly unnamed: readonly string[];
  /** Keys that should end and have no expiry. */
  readonly endless: readonly string[];
  /** By row: how many keys. */
  readonly counts: ReadonlyMap<string, number>;
}

/** Lets that many claims be provisioned and deleted, with a driver that refuses, fails and does not
 * answer, and with PVs that are deleted by hand; waits until nothing is left to do, and lists what
 * is left in Redis. */
async function liveAndLeave(lives: number): Promise<Remains> {
  const random = seeded(lives);
  const bed = await ProcessBed.open({ onCall: (call) => answer(call, random()) });
  try {
    await bed.startIngest();
    await bed.startJobs('--settle-time=100ms', '--retry-interval-max=1s');
    const workers = Array.from({ length: AT_ONCE }, async (_, at) => {
      for (let life = at; life < lives; life += AT_ONCE) await liveOnce(bed, random);
    });
    await Promise.all(workers);
    await waitUntilIdle(bed);
    return await listRemains(bed.redis.redis);
  } finally {
    await bed.close();
  }
}

function answer({ method }: DriverCall, luck: number): Promise<never> | undefined {
  if (method !== 'CreateVolume' && method !== 'DeleteVolume') return undefined;
  if (luck < 0.05) throw new DriverStatus(Code.ResourceExhausted, 'no space');
  if (luck < 0.1) throw new DriverStatus(Code.Internal, 'failed');
  return luck < 0.12 ? new Promise(() => undefined) : undefined;
}

async function liveOnce(bed: ProcessBed, random: () => number): Promise<void> {
  const claim = await bed.newClaim();
  const { namespace = '', name, uid } = claim.metadata;
  const giveUpMs = Date.now() + LONGEST_WAIT_MS * random();
  await until(async () => Date.now() > giveUpMs || (await bed.isBound(claim)), 'a claim is bound');
  if (random() < BY_HAND) await deleteVolumeByHand(bed, uid);
  await bed.kube.delete<Claim>(claims, { namespace, name });
}

/** Deletes the PV and its finalizers, if it is there, so that nobody deletes its volume. */
async function deleteVolumeByHand({ kube }: ProcessBed, uid: string): Promise<void> {
  const name = `pvc-${uid}`;
  const body = { metadata: { finalizers: null } };
  await kube.delete<Volume>(volumes, { name }).catch(() => undefined);
  await kube.patch<Volume>(volumes, { name }, { type: 'merge', body }).catch(() => undefined);
}

async function waitUntilIdle({ kube, redis: { redis } }: ProcessBed): Promise<void> {
  const isEmpty = async (): Promise<boolean> => {
    const lists = await Promise.all([kube.list(claims, {}), kube.list(volumes, {})]);
    if (lists.some(({ items }) => items.length > 0)) return false;
    for (const kind of ['claim', 'volume'] as const) {
      const root = queueRoot('csi', queueName(kind, DRIVER));
      const counts = await Promise.all([
        redis.zcard(`${root}delayed`),
        redis.zcard(`${root}prioritized`),
        redis.llen(`${root}wait`),
        redis.llen(`${root}active`),
        // The leader removes what is finished.
        redis.zcard(`${root}completed`),
      ]);
      if (counts.some((count) => count > 0)) return false;
    }
    return true;
  };
  await until(isEmpty, 'nothing is left to do', 120_000);
}

async function listRemains(redis: Redis): Promise<Remains> {
  const rows = await readRows();
  const unnamed: string[] = [];
  const endless: string[] = [];
  const counts = new Map<string, number>();
  for (const key of await redis.keys('*')) {
    const row = rows.find(({ pattern }) => pattern.test(key));
    if (row === undefined) unnamed.push(key);
    else {
      counts.set(row.key, (counts.get(row.key) ?? 0) + 1);
      if (!row.isKept && (await redis.pttl(key)) < 0) endless.push(key);
    }
  }
  return { unnamed, endless, counts };
}

/** The items of docs/redis.md. That of BullMQ's keys is the widest, and comes last. */
async function readRows(): Promise<readonly Row[]> {
  const text = await readFile(new URL('../../../docs/redis.md', import.meta.url), 'utf8');
  const items = text.split(/\n(?=- |\n)/).filter((item) => item.startsWith('- **`'));
  return items
    .map((item) => toRow(/`(?<key>[^`]+)`/.exec(item)?.groups?.['key'] ?? '', item))
    .toSorted((a, b) => Number(isOfBullmq(a)) - Number(isOfBullmq(b)));
}

function isOfBullmq({ key }: Row): boolean {
  return key === '{csi}:<queue>:<part>';
}

function toRow(key: string, item: string): Row {
  const names: Readonly<Record<string, string>> = {
    '<driver>': DRIVER,
    '<queue>': `(claims|volumes)\\.${DRIVER}`,
    '<part>': '.+',
  };
  const pattern = key
    .replace(/[{}#]/g, '\\$&')
    .replace(/<[^>]+>/g, (name) => names[name] ?? '[^#]+');
  return { key, pattern: new RegExp(`^${pattern}$`), isKept: !item.includes('Ends:') };
}

/** BullMQ's own keys of each queue. */
const BULLMQ_KEYS = 2 * 20;

describe('after 100 lives of volumes with faults', () => {
  it('Redis holds only keys that docs/redis.md names, and each ends as it says', async () => {
    const { unnamed, endless, counts } = await liveAndLeave(100);
    assert.deepEqual(unnamed, [], 'every key has a row');
    assert.deepEqual(endless, [], 'every key that should end has an expiry');
    const jobs = counts.get('{csi}:<queue>:<part>') ?? 0;
    assert.ok(jobs <= BULLMQ_KEYS, `${jobs} keys of BullMQ`);
  });
});
