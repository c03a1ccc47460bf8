import { beginTerm, dropJobsOfBefore, readHistory, type Term } from '#src/queue/history.ts';
import type { Leading } from '#src/queue/work-queue.ts';
import type { RedisPlace } from '#src/redis/key-prefix.ts';

/** Begins to lead as an ingest does, without a Lease: writes the term, and drops what belongs to
 * another history. */
export async function beginLeading(place: RedisPlace, transitions = 1): Promise<Leading> {
  const term: Term = { transitions, leader: `leader-${transitions}` };
  await beginTerm(place, term, false);
  const { history } = await readHistory(place);
  await dropJobsOfBefore(place, term, history);
  return { term, history };
}
