import type { Redis } from 'ioredis';

import { keyPrefix } from '../redis/key-names.ts';
import { pendingPromotionKey } from './key-names.ts';
import { defineScript, END_WAIT } from '../redis/script.ts';

/* A kick that comes while the key's run is under way. BullMQ moves only jobs that wait already, and
 * keeps a hint for after the job's end, which is late by a whole back-off; of several hints it
 * keeps the last, so a plain one would wipe the kick out. So a kick leaves a note of its own beside
 * the job that it met. */

/** Longer than any run. */
const NOTE_TTL_MS = 3_600_000;

/** KEYS: what the key's job is, active list. ARGV: beginning of notes, lifetime in ms. Returns 1 if
 * the key's run is under way. */
const leave = defineScript(`
local job = redis.call('GET', KEYS[1])
if not job or not redis.call('LPOS', KEYS[2], job) then
  return 0
end
redis.call('SET', ARGV[1] .. job, '1', 'PX', ARGV[2])
return 1
`);

/** KEYS: note, what BullMQ keeps of hints that came during the run (all of them are answered by the
 * next one). ARGV: beginning of the queue's keys, job id, now in ms. Returns 1 if the job runs
 * again at once. */
const take = defineScript(`${END_WAIT}
if redis.call('DEL', KEYS[1]) == 0 or not endWait(ARGV[1], ARGV[2], ARGV[3]) then
  return 0
end
redis.call('DEL', KEYS[2])
return 1
`);

/** KEYS: what the key's job is. ARGV: beginning of the queue's keys, now in ms. Returns 1 if a job
 * that waited runs at once. */
const end = defineScript(`${END_WAIT}
local job = redis.call('GET', KEYS[1])
return job and endWait(ARGV[1], job, ARGV[2]) and 1 or 0
`);

export interface QueuePlace {
  readonly prefix: string;
  readonly queue: string;
}

/** Leaves a note at the run of this key, if one is under way. To be done before the kick is added:
 * then either the run's end sees the note, or the kick meets a job that waits and moves it. */
export async function notePendingPromotion(
  redis: Redis,
  { prefix, queue }: QueuePlace,
  keyId: string,
): Promise<void> {
  const root = `${keyPrefix(prefix)}:${queue}:`;
  await leave.run(
    redis,
    [`${root}de:${keyId}`, `${root}active`],
    [pendingPromotionKey(prefix, queue, ''), NOTE_TTL_MS],
  );
}

/** Runs the key at once if it waits to be tried again, and does nothing otherwise.
 * @returns whether it waited */
export async function promoteDelayed(
  redis: Redis,
  { prefix, queue }: QueuePlace,
  keyId: string,
  nowMs: number,
): Promise<boolean> {
  const root = `${keyPrefix(prefix)}:${queue}:`;
  return (await end.run(redis, [`${root}de:${keyId}`], [root, nowMs])) === 1;
}

/** Honours a kick that came while the job's run was under way and now waits to be tried again.
 * @returns whether there was one */
export async function takePendingPromotion(
  redis: Redis,
  place: QueuePlace & { readonly jobId: string; readonly keyId: string },
  nowMs: number,
): Promise<boolean> {
  const { prefix, queue, jobId, keyId } = place;
  const root = `${keyPrefix(prefix)}:${queue}:`;
  return (
    (await take.run(
      redis,
      [pendingPromotionKey(prefix, queue, jobId), `${root}dn:${keyId}`],
      [root, jobId, nowMs],
    )) === 1
  );
}
