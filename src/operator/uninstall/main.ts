import type { Redis } from 'ioredis';
import type { KubeClient } from '../../kube/client.ts';
import { openKubeClient } from '../../kube/open-client.ts';
import { CLAIM_FINALIZER, INCARNATION } from '../../kube/keys.ts';
import { listPages } from '../../kube/list-pages.ts';
import type { Claim, Lease } from '../../kube/objects.ts';
import { claims, leases } from '../../kube/resources.ts';
import { openRedisAccess } from '../../redis/access.ts';
import { openRedis } from '../../redis/connection.ts';
import { keyPrefix } from '../../redis/key-names.ts';
import { listQueues } from '../../queue/registry.ts';
import { openRecords, type OpenRecord } from '../../records/open-records.ts';
import { escapeControls } from '../../runtime/printable.ts';
import { runProcess, type Invocation, type ProcessContext } from '../../runtime/process.ts';
import { uninstall } from '../flags.ts';
import { hasFinalizer, removeFinalizer } from '../../volumes/finalizer-patches.ts';

/** Removes what sutler left in the cluster and in Redis, or lists it without --yes. Exit status 1,
 * without any change, if volume records are open. */
export function main(invocation: Invocation): Promise<void> {
  const { summary, flags: table } = uninstall;
  return runProcess(invocation, { name: 'uninstall', summary, table, start });
}

async function start(context: ProcessContext<typeof uninstall.flags>): Promise<void> {
  const { flags, closers, stdout } = context;
  const log = context.log.child({}, { level: 'warn' });
  const end = (message: string, status: 0 | 1): void => {
    stdout.write(`${escapeControls(message)}\n`);
    context.stop(status);
  };
  const kube = await openKubeClient('uninstall', { ...context, log });
  const access = await openRedisAccess({ ...context, log });
  const link = openRedis({
    url: flags.redisUrl,
    access,
    role: 'plain',
    name: 'sutler-uninstall',
    log,
  });
  closers.add('Redis', () => link.close());

  const open = await listOpenRecords(link.redis, flags.redisPrefix);
  if (open[0] !== undefined) {
    const message =
      `${open.length} volume records are open, ${open[0].object} among them. Nothing was ` +
      'changed: wait until all are closed, or drop them with sutler forget (see sutler audit)';
    return end(message, 1);
  }
  const found = {
    claims: await listClaimsWithFinalizer(kube),
    leases: await listAnnotatedLeases(kube, flags.leaderElectionNamespace),
    redisKeys: await scanKeys(link.redis, flags.redisPrefix),
  };
  stdout.write(
    `finalizer ${CLAIM_FINALIZER} on ${found.claims.length} claims, ` +
      `annotation ${INCARNATION} on ${found.leases.length} Leases, ` +
      `${found.redisKeys.length} keys in Redis\n`,
  );
  if (!flags.yes)
    return end('nothing was changed; stop all sutler processes and run this again with --yes', 0);
  for (const claim of found.claims) await removeClaimFinalizer(kube, claim);
  for (const lease of found.leases) await removeAnnotation(kube, lease);
  for (let from = 0; from < found.redisKeys.length; from += 500)
    await link.redis.unlink(...found.redisKeys.slice(from, from + 500));
  end('removed all of it', 0);
}

async function listOpenRecords(redis: Redis, prefix: string): Promise<readonly OpenRecord[]> {
  const drivers = new Set((await listQueues(redis, prefix)).map(({ driver }) => driver));
  const lists = [...drivers].map((driver) => openRecords(redis, prefix, driver));
  return (await Promise.all(lists)).flat();
}

async function listClaimsWithFinalizer(kube: KubeClient): Promise<readonly Claim[]> {
  const found: Claim[] = [];
  for await (const { items: page } of listPages<Claim>(kube, claims))
    found.push(...page.filter((claim) => hasFinalizer(claim, CLAIM_FINALIZER)));
  return found;
}

async function listAnnotatedLeases(kube: KubeClient, namespace: string): Promise<readonly Lease[]> {
  const page = await kube.list<Lease>(leases, namespace === '' ? {} : { namespace });
  return page.items.filter(({ metadata }) => metadata.annotations?.[INCARNATION] !== undefined);
}

async function removeClaimFinalizer(kube: KubeClient, { metadata }: Claim): Promise<void> {
  const change = removeFinalizer(metadata, CLAIM_FINALIZER);
  const body = { metadata: { uid: metadata.uid, ...change?.patch } };
  await kube.patch(claims, metadata, { type: 'strategic', body });
}

async function removeAnnotation(kube: KubeClient, { metadata }: Lease): Promise<void> {
  const lease = await kube.get<Lease>(leases, metadata);
  if (lease === undefined) return;
  const { [INCARNATION]: _, ...annotations } = lease.metadata.annotations ?? {};
  const changed = { ...lease, metadata: { ...lease.metadata, annotations } };
  await kube.update(leases, metadata, changed);
}

async function scanKeys(redis: Redis, prefix: string): Promise<readonly string[]> {
  // The pattern needs no escapes: braces have no meaning in it, and a prefix has no wildcards.
  const pages = redis.scanStream({ match: `${keyPrefix(prefix)}:*`, count: 1000 });
  const keys: string[] = [];
  for await (const page of pages) keys.push(...(page as readonly string[]));
  return keys;
}
