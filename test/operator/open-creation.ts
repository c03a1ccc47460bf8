import { Registry } from 'prom-client';
import { leaseName } from '#src/election/lease.ts';
import { Journal } from '#src/journal/journal.ts';
import type { KubeClient } from '#src/kube/client.ts';
import { WorkQueue } from '#src/queue/work-queue.ts';
import { openRedis } from '#src/redis/connection.ts';
import { silentLog } from '#src/runtime/log.ts';
import { beginLeading } from '../harness/leading.ts';
import type { TestRedis } from '../harness/redis.ts';
import { aClaim } from '../volumes/builders.ts';

/** A claim ns/<name> in the journal with a job, as a leader writes them.
 * @param o.doubtMs  calls of earlier jobs may be at work for so long; undefined: none was begun
 * @returns its journal, which the caller stops */
export async function openCreation(
  { kube, server }: { readonly kube: KubeClient; readonly server: TestRedis },
  driver: string,
  o: {
    readonly uid: string;
    readonly name: string;
    readonly doubtMs?: number;
    /** That its journal is of a process for this node. */
    readonly node?: string;
  },
): Promise<Journal> {
  const { uid, name, doubtMs } = o;
  const link = openRedis({ url: server.url, role: 'producer', log: silentLog });
  const place = { redis: server.redis, prefix: 'csi', driver };
  const work = new WorkQueue({
    ...place,
    link,
    dirty: () => 0,
    log: silentLog,
    metrics: new Registry(),
  });
  const journal = new Journal({
    client: kube,
    namespace: 'default',
    lease: leaseName(driver),
    driver,
    node: o.node,
    holder: 'test',
    onGone: () => undefined,
    log: silentLog,
  });
  await journal.begin(1, () => true);
  const claim = aClaim({ metadata: { uid, name, namespace: 'ns' } });
  await journal.add([{ claim, cls: undefined }]);
  const key = { kind: 'claim', uid, namespace: 'ns', name } as const;
  const request = { key, isNow: false, journal: journal.objectOf(uid), doubtMs };
  await work.add('claim', [request], await beginLeading(place));
  await work.close();
  link.close();
  return journal;
}
