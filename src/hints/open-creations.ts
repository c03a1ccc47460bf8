import { listJournal, type JournalPlace } from '../journal/list-journal.ts';
import type { KubeClient } from '../kube/client.ts';
import { keyOf } from '../kube/resources.ts';
import { showDoubts } from '../queue/run.ts';
import { queueName, queueRoot } from '../queue/queue-keys.ts';
import { readStatus } from '../queue/status.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { isoTime } from '../runtime/printable.ts';

/** A claim in the journal. sutler may be creating its volume. */
export interface OpenCreation {
  readonly uid: string;
  /** "namespace/claim" */
  readonly object: string;
  /** The Lease that has its entry. */
  readonly journal: string;
  /** A run has marked a call. Also true for a claim without a job, because one may have. */
  readonly isBegun: boolean;
  /** Unix ms: until when a call may be at work in the driver; undefined: none is. */
  readonly inDoubtUntilMs: number | undefined;
  /** How its last run ended; undefined if none has, or it ended well. */
  readonly reason: string | undefined;
}

/** Reads the claims in the journal of a driver, and the state of their jobs.
 * @throws KubeError; also rejects while Redis can't be reached */
export async function readOpenCreations(
  kube: Pick<KubeClient, 'list'>,
  journal: JournalPlace,
  place: RedisPlace,
  nowMs: number,
): Promise<readonly OpenCreation[]> {
  const queue = queueName('claim', place.driver);
  const open: OpenCreation[] = [];
  for (const { uid, claim, object } of await listJournal(kube, journal)) {
    const key = { kind: 'claim', uid } as const;
    const [[leftMs], status, [data, finishedOn]] = await Promise.all([
      showDoubts(place, queue, [uid]),
      readStatus(place.redis, { ...place, key }),
      place.redis.hmget(queueRoot(place.prefix, queue) + uid, 'data', 'finishedOn'),
    ]);
    // The leader, or the next one, is about to remove the entry of a finished job.
    const isFinished = finishedOn !== null && finishedOn !== undefined;
    const { namespace = '', name } = claim.metadata;
    open.push({
      uid,
      object: keyOf({ namespace, name }),
      journal: object,
      isBegun: !isFinished && (leftMs !== undefined || data === null),
      inDoubtUntilMs: leftMs !== undefined && leftMs > 0 ? nowMs + leftMs : undefined,
      reason: status?.reason,
    });
  }
  return open;
}

/** For people: a line about a claim in the journal. */
export function describeCreation(open: OpenCreation): string {
  const { object, uid, inDoubtUntilMs, reason } = open;
  const doubt =
    inDoubtUntilMs === undefined
      ? ''
      : `  a call may be at work in the driver until ${isoTime(inDoubtUntilMs)}`;
  return `${object}  ${uid}${doubt}${reason === undefined ? '' : `  last run: ${reason}`}`;
}
