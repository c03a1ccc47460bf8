import type { Redis } from 'ioredis';
import type { KubeClient } from '../../kube/client.ts';
import { CLAIM_FINALIZER, DATA_EPOCH, DATA_EPOCH_SEQUENCE } from '../../kube/keys.ts';
import type { Claim, Lease } from '../../kube/objects.ts';
import { claims, leases } from '../../kube/resources.ts';
import { systemClock } from '../../runtime/clock.ts';
import type { Invocation } from '../../runtime/process.ts';
import { removeFinalizer } from '../../volumes/finalizer-patches.ts';
import { type Means, Refusal, type Result, runCommand } from '../command.ts';
import { uninstall } from '../flags.ts';
import { findLeftovers, type Leftovers } from './find-leftovers.ts';
import { whyInUse } from './in-use.ts';

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
