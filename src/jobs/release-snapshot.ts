import { isOutage, KubeError } from '../kube/kube-error.ts';
import type { Snapshot } from '../kube/objects.ts';
import { keyOf, snapshots } from '../kube/resources.ts';
import type { JobKey } from '../queue/contract.ts';
import type { Outcome } from '../queue/outcome.ts';
import { isPending, restoredSnapshot } from '../volumes/source-use.ts';
import { findClaim } from './find-claim.ts';
import type { ProcessorPorts } from './ports.ts';
import { isProtected, unprotect } from './snapshot-finalizer.ts';

type Ports = Pick<ProcessorPorts, 'kube' | 'openSources' | 'log'>;

/** Somebody may withhold the right to write snapshots, take the snapshot away, or change it. */
const EXPECTED: ReadonlySet<number> = new Set([403, 404, 409]);

/** One run of a snapshot's job: takes our finalizer off where nobody restores from the snapshot any more (spec 04 E). What it can't do now the next sweep finds
 * again, so only an API server or a Redis that is down makes it come back by itself. */
export async function releaseSnapshot(ports: Ports, job: JobKey): Promise<Outcome> {
  try {
    return await release(ports, job);
  } catch (error) {
    if (!(error instanceof KubeError) || isOutage(error)) throw error;
    const level = EXPECTED.has(error.code) ? 'debug' : 'warn';
    ports.log[level]({ snapshot: keyOf(job), error: error.message }, 'a snapshot keeps our finalizer until the next sweep');
    return { kind: 'done', note: `left to the next sweep: ${error.message}` };
  }
}

async function release(ports: Ports, job: JobKey): Promise<Outcome> {
  const ref = { namespace: job.namespace, name: job.name };
  const snapshot = await ports.kube.get<Snapshot>(snapshots, ref);
  if (snapshot?.metadata.uid !== job.uid) return { kind: 'done', note: 'the snapshot is gone' };
  if (!isProtected(snapshot)) return { kind: 'done', note: 'our finalizer is off' };
  // Claims of other namespaces the sweep has looked through. Claims before records: one that opens a record in between was still there when we listed.
  const restore = await findClaim(ports, job.namespace, (claim) => isPending(claim) && restoredSnapshot(claim) === keyOf(ref));
  if (restore !== undefined) return { kind: 'done', note: `claim ${restore.metadata.name} is restored from it` };
  if ((await ports.openSources()).has(job.uid)) return { kind: 'done', note: 'a volume is being made from it' };
  await unprotect(ports, snapshot);
  return { kind: 'done', note: 'the snapshot is let go' };
}
