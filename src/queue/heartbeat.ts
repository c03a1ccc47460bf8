import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import type { Redis } from 'ioredis';
import type { RedisLink } from '../redis/connection.ts';
import { describeRedisError } from '../redis/error-text.ts';
import { REDIS_NOW } from '../redis/named-script.ts';
import type { Logger } from '../runtime/log.ts';
import { Outage } from '../runtime/outage.ts';
import {
  DELAYED_SCORE_PER_MS,
  heartbeatKey,
  markerKey,
  type QueuePlace,
  queueRoot,
} from './queue-keys.ts';

export type Heartbeat = ReturnType<typeof startHeartbeat>;

const PERIOD_MS = 1_000;
/** A longer gap between two heartbeats means that no worker was alive. */
const LONGEST_GAP_MS = 2_500;
/** When an answer takes longer, Redis is frozen or cut off, although it is connected. */
const LONGEST_ANSWER_MS = 2_500;

/** Lua: what the heartbeat does with BullMQ's own keys, for which BullMQ has no call. `root` is
 * what the keys of a queue begin with. */
const QUEUE_LUA = `
-- Makes every delayed job due that much later, before a worker can take one of them.
local function extendDelays(root, byMs)
  local delayed = redis.call('ZRANGE', root .. 'delayed', 0, -1, 'WITHSCORES')
  for i = 1, #delayed, 2 do
    local score = tonumber(delayed[i + 1]) + byMs * ${DELAYED_SCORE_PER_MS}
    redis.call('ZADD', root .. 'delayed', string.format('%.0f', score), delayed[i])
  end
end

-- Has what expires by Redis' clock expire that much earlier: the locks of jobs, the pause of a rate
-- limit, and the pause between two looks for jobs of dead workers.
local function shortenExpiries(root, byMs)
  local names = {'limiter', 'stalled-check'}
  for _, jobId in ipairs(redis.call('LRANGE', root .. 'active', 0, -1)) do
    names[#names + 1] = jobId .. ':lock'
  end
  for _, name in ipairs(names) do
    local leftMs = redis.call('PTTL', root .. name)
    if leftMs > 0 then redis.call('PEXPIRE', root .. name, math.max(1, leftMs - byMs)) end
  end
end

-- Unblocks a worker of the queue if a job waits or is due. Answers whether it has jobs, delayed
-- ones included.
local function unblockForWaiting(root, nowMs)
  local due = redis.call('ZCOUNT', root .. 'delayed', '-inf', nowMs * ${DELAYED_SCORE_PER_MS})
  local waiting = redis.call('EXISTS', root .. 'wait', root .. 'prioritized')
  if waiting + due > 0 then redis.call('ZADD', root .. 'marker', 0, '0') end
  return waiting > 0 or redis.call('EXISTS', root .. 'delayed') == 1
end
`;

/** Writes the time for each queue, and makes all its delayed jobs due later by the time in which no
 * worker lived. KEYS: 1 the flush marker, then the last heartbeat of each queue (its time by Redis'
 * clock and by the clock of the worker that wrote it), then the root of each queue's keys. ARGV: 1
 * this worker's time, 2 for how long this worker was alive but stood still, in ms, 3 '1' to unblock
 * a worker of each queue where jobs wait, 4 a flush marker for a Redis without one. Answer: the
 * flush marker; '1' or '0' for whether a queue has jobs, '' where that was not asked; for each
 * queue the time without a worker in ms, or 0. That time is the shorter of the two gaps: jobs are
 * due by the workers' clocks, so they must not be delayed because only Redis' clock was set
 * forward, or because the clocks of two workers differ.
 *
 * Where Redis' clock was set back, what expires by it would last that much longer: the lock of a
 * dead worker's job would keep the job from all others. It is shortened, and so are delays where
 * the worker's clock was set back too. */
const WRITE = `${QUEUE_LUA}${REDIS_NOW}
local queues, workerNow = (#KEYS - 1) / 2, tonumber(ARGV[1])
local last = redis.call('MGET', unpack(KEYS, 1, 1 + queues))
local written = {KEYS[1], last[1] or ARGV[4]}
for i = 2, 1 + queues do
  written[#written + 1] = KEYS[i]
  written[#written + 1] = string.format('%.0f %.0f', now, workerNow)
end
redis.call('MSET', unpack(written))
local answer, hasJobs = {written[2], ''}, false
for i = 2, 1 + queues do
  local root = KEYS[i + queues]
  local lastOfRedis, lastOfWorker = string.match(last[i] or '', '^(%d+) (%d+)$')
  lastOfRedis = tonumber(lastOfRedis) or now
  lastOfWorker = tonumber(lastOfWorker) or workerNow
  local gapMs = math.min(now - lastOfRedis, workerNow - lastOfWorker) - tonumber(ARGV[2])
  if gapMs <= ${LONGEST_GAP_MS} then gapMs = 0 else extendDelays(root, gapMs) end
  local setBackMs = lastOfRedis - now
  if setBackMs > ${LONGEST_GAP_MS} then
    shortenExpiries(root, setBackMs)
    local workerBackMs = math.min(setBackMs, lastOfWorker - workerNow)
    if workerBackMs > 0 then extendDelays(root, -workerBackMs) end
  end
  if ARGV[3] == '1' and unblockForWaiting(root, workerNow) then hasJobs = true end
  answer[#answer + 1] = gapMs
end
if ARGV[3] == '1' then answer[2] = hasJobs and '1' or '0' end
return answer
`;

/** Writes to Redis each second that the queues of this process have a worker, and extends delays
 * by the time in which none was alive. Otherwise all jobs that came due in that time would run at
 * once when the first worker starts, and a restart of everything would send the driver a burst of
 * calls. A worker whose event loop stands still is alive all the same: if such times extended
 * delays, a lone worker that stands still again and again would never end one. The heartbeat also
 * finds a Redis that takes no writes or does not answer, passes on the flush marker, and every 2 s
 * unblocks a worker for jobs that wait: the one that was unblocked for them may have frozen.
 * @param options.onMarker  called with the flush marker, which Redis has from then on */
export function startHeartbeat(
  link: RedisLink,
  options: {
    readonly prefix: string;
    readonly onMarker: (marker: string) => void;
    readonly log: Logger;
  },
) {
  const { prefix, onMarker, log } = options;
  const queues = new Set<string>();
  let pending: { readonly sinceMs: number; readonly written: Promise<void> } | undefined;
  const silence = new Outage(log);
  let hasJobs = true;
  let refusal: string | undefined;
  /** Whether the last heartbeat unblocked workers if jobs waited: every other one does. */
  let unblocks = false;
  let tickedMs = performance.now();
  /** For how long the event loop stood still: by how much the timer is overdue. */
  const stillMs = (): number => Math.max(0, performance.now() - tickedMs - PERIOD_MS);

  const send = async (): Promise<void> => {
    const names = [...queues];
    const keys = [
      markerKey(prefix),
      ...names.map((queue) => heartbeatKey(prefix, queue)),
      ...names.map((queue) => queueRoot(prefix, queue)),
    ];
    unblocks = !unblocks;
    const args = [Date.now(), Math.round(stillMs()), unblocks ? '1' : '0', randomUUID()];
    // EVAL, not EVALSHA: a Redis that was restarted does not have the script, and a worker could
    // take jobs before the script is sent again.
    const answer = await link.redis.eval(WRITE, keys.length, ...keys, ...args);
    const [marker, found, ...gaps] = answer as unknown[];
    if (found !== '') hasJobs = found === '1';
    for (const [i, queue] of names.entries())
      if (Number(gaps[i]) > 0)
        log.info(
          { queue, gapMs: Number(gaps[i]) },
          'no worker was alive for a while: delayed jobs wait that much longer',
        );
    onMarker(String(marker));
    refusal = undefined;
  };
  const write = (): Promise<void> => {
    if (pending !== undefined) return pending.written;
    const written = send().finally(() => {
      if (pending?.written === written) pending = undefined;
    });
    pending = { sinceMs: performance.now(), written };
    return written;
  };
  const writeQuietly = (): void =>
    void write().catch((error: unknown) => {
      refusal = describeRedisError(link.address, error);
    });
  const trouble = (): string | undefined => describeSilence(link, pending?.sinceMs) ?? refusal;
  const timer = setInterval(() => {
    if (link.trouble === undefined) writeQuietly();
    tickedMs = performance.now();
    logTrouble(silence, link, trouble());
  }, PERIOD_MS);
  // After a reconnect the client sends queued commands first. So the heartbeat reaches Redis before
  // a worker takes any job that came due in between.
  link.redis.on('close', writeQuietly);
  return {
    /** One line while Redis gives no answer, or refuses, although the connection exists. */
    get trouble() {
      return trouble();
    },
    /** Whether a queue of this process has jobs, delayed ones included, as of 2 s ago at most. */
    get hasJobs() {
      return hasJobs;
    },
    /** This process has a worker of the queue from now on. */
    add(queue: string): void {
      queues.add(queue);
      // The heartbeat under way does not have this queue: the next call of `write` sends another.
      pending = undefined;
    },
    remove: (queue: string) => void queues.delete(queue),
    /** Writes the heartbeat of all queues now.
     * @throws what Redis answers when it takes no writes */
    write,
    stop(): void {
      clearInterval(timer);
      silence.forget();
      link.redis.off('close', writeQuietly);
    },
  };
}

/** @param sinceMs  when the heartbeat was sent that has no answer yet */
function describeSilence({ address }: RedisLink, sinceMs = performance.now()): string | undefined {
  const silentMs = performance.now() - sinceMs;
  if (silentMs <= LONGEST_ANSWER_MS) return undefined;
  return `Redis at ${address} has not answered for ${Math.round(silentMs / 1000)} s; waiting for it`;
}

/** A connection that is lost is reported by the link. */
function logTrouble(
  outage: Outage,
  { address: redis, trouble: lost }: RedisLink,
  trouble: string | undefined,
): void {
  if (lost !== undefined) return outage.forget();
  if (trouble === undefined) outage.ended({ redis }, 'Redis answers workers again');
  else outage.met(trouble, { trouble }, 'Redis does not answer workers; trying again');
}

/** How long ago some worker of a queue wrote its heartbeat, in ms; undefined: never. */
export async function readHeartbeat(
  redis: Redis,
  { prefix, queue }: QueuePlace,
): Promise<number | undefined> {
  const [text, [seconds]] = await Promise.all([
    redis.get(heartbeatKey(prefix, queue)),
    redis.time(),
  ]);
  const writtenMs = Number(/^\d+/.exec(text ?? '')?.[0]);
  return Number.isNaN(writtenMs) ? undefined : Math.max(0, Number(seconds) * 1000 - writtenMs);
}
