import type { KubeClient } from '../../kube/client.ts';
import { openKubeClient } from '../../kube/open-client.ts';
import { CLAIM_FINALIZER, EPOCH } from '../../kube/keys.ts';
import type { Claim, Lease } from '../../kube/objects.ts';
import { claims, leases } from '../../kube/resources.ts';
import { openRedis } from '../../redis/connection.ts';
import { keyPrefix } from '../../redis/key-names.ts';
import { listQueues } from '../../queue/registry.ts';
import { openRecords } from '../../records/open-records.ts';
import { runProcess, type Invocation, type ProcessContext } from '../../runtime/process.ts';
import { uninstall } from '../flags.ts';

/** Removes sutler's marks and ends: 0 when nothing is left (or, without --yes, was listed), 1 while
 * records are open. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, {
    name: 'uninstall',
    summary: uninstall.summary,
    table: uninstall.flags,
    start,
  });
}

async function start(p: ProcessContext<typeof uninstall.flags>): Promise<void> {
  const { flags: f, closers } = p;
  const log = p.log.child({}, { level: 'warn' });
  const say = (line: string): unknown => p.stdout.write(`${line}\n`);
  const kube = await openKubeClient('uninstall', { ...p, log });
  const link = openRedis({ url: f.redisUrl, role: 'plain', name: 'sutler-uninstall', log });
  closers.add('Redis', () => link.close());

  const drivers = new Set(
    (await listQueues(link.redis, f.redisPrefix)).map(({ driver }) => driver),
  );
  const open = (
    await Promise.all([...drivers].map((driver) => openRecords(link.redis, f.redisPrefix, driver)))
  ).flat();
  if (open.length > 0) {
    say(
      `${open.length} volume records are open, ${open[0]?.object} among them: let them end, or drop them with sutler forget`,
    );
    return p.stop(1);
  }
  const marked = await markedClaims(kube);
  const annotated = await annotatedLeases(kube, f.leaderElectionNamespace);
  const keys = await keysOf(link.redis, f.redisPrefix);
  say(
    `finalizer ${CLAIM_FINALIZER} on ${marked.length} claims, annotation ${EPOCH} on ${annotated.length} Leases, ${keys.length} keys in Redis`,
  );
  if (!f.yes) {
    say('nothing was changed; stop all processes of sutler and run this again with --yes');
    return p.stop(0);
  }
  for (const { metadata } of marked) await withoutFinalizer(kube, metadata);
  for (const { metadata } of annotated) {
    const ref = {
      name: metadata.name,
      ...(metadata.namespace === undefined ? {} : { namespace: metadata.namespace }),
    };
    const { [EPOCH]: _, ...annotations } = metadata.annotations ?? {};
    const lease = await kube.get<Lease>(leases, ref);
    if (lease !== undefined)
      await kube.update(leases, ref, { ...lease, metadata: { ...lease.metadata, annotations } });
  }
  for (let from = 0; from < keys.length; from += 500)
    await link.redis.unlink(...keys.slice(from, from + 500));
  say('removed');
  p.stop(0);
}

async function markedClaims(kube: KubeClient): Promise<readonly Claim[]> {
  const marked: Claim[] = [];
  for (let continueToken: string | undefined; ;) {
    const page = await kube.list<Claim>(claims, {
      limit: 500,
      ...(continueToken === undefined ? {} : { continueToken }),
    });
    marked.push(
      ...page.items.filter(
        ({ metadata }) => metadata.finalizers?.includes(CLAIM_FINALIZER) === true,
      ),
    );
    if (page.continueToken === undefined || page.continueToken === '') return marked;
    ({ continueToken } = page);
  }
}

async function annotatedLeases(kube: KubeClient, namespace: string): Promise<readonly Lease[]> {
  const page = await kube.list<Lease>(leases, namespace === '' ? {} : { namespace });
  return page.items.filter(
    ({ metadata }) => metadata.annotations !== undefined && EPOCH in metadata.annotations,
  );
}

function withoutFinalizer(
  kube: KubeClient,
  { namespace, name, uid }: Claim['metadata'],
): Promise<unknown> {
  const body = { metadata: { uid, '$deleteFromPrimitiveList/finalizers': [CLAIM_FINALIZER] } };
  return kube.patch(
    claims,
    { name, ...(namespace === undefined ? {} : { namespace }) },
    { type: 'strategic', body },
  );
}

async function keysOf(
  redis: {
    scan: (...args: [string, 'MATCH', string, 'COUNT', number]) => Promise<[string, string[]]>;
  },
  prefix: string,
): Promise<string[]> {
  // Braces are no pattern in Redis; the rest of a prefix has only letters that stand for
  // themselves.
  const pattern = `${keyPrefix(prefix)}:*`;
  const keys: string[] = [];
  for (let cursor = '0'; ;) {
    const [next, page] = await redis.scan(cursor, 'MATCH', pattern, 'COUNT', 1000);
    keys.push(...page);
    if (next === '0') return keys;
    cursor = next;
  }
}
