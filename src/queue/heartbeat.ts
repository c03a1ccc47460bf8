import { performance } from 'node:perf_hooks';
import type { RedisLink } from '../redis/connection.ts';
import { REDIS_NOW } from '../redis/named-script.ts';
import type { Logger } from '../runtime/log.ts';
import { QUEUE_LUA, queueRoot } from './bullmq-layout.ts';
import { heartbeatKey, type QueuePlace } from './key-names.ts';

/** Writes to Redis each second that a worker of the queue is alive. */
export interface Heartbeat {
  /** One line while Redis gives no answer, although the connection exists. */
  readonly trouble: string | undefined;
  /** Writes the heartbeat now.
   * @throws what Redis answers when it takes no writes */
  write(): Promise<void>;
  stop(): void;
}

const PERIOD_MS = 1_000;
/** A longer gap between two heartbeats means that no worker was alive. */
const LONGEST_GAP_MS = 2_500;
/** When an answer takes longer, Redis is frozen or cut off, although it is connected. */
const LONGEST_ANSWER_MS = 2_500;

/** Writes the time, and makes all delayed jobs due later by the time in which no worker lived.
 * KEYS: 1 root of the queue's keys, 2 the last heartbeat: its time by Redis' clock and by the clock
 * of the worker that wrote it. ARGV: 1 this worker's time, 2 for how long this worker was alive but
 * stood still, in ms, 3 '1' to unblock a worker if jobs wait. Answer: the time without a worker in
 * ms, or 0. That is the shorter of the two gaps: jobs are due by the workers' clocks, so they must
 * not be delayed because only Redis' clock was set forward, or because the clocks of two workers
 * differ. */
const WRITE = `${QUEUE_LUA}${REDIS_NOW}
local root, heartbeat, workerNow = KEYS[1], KEYS[2], tonumber(ARGV[1])
local last, lastOfWorker = string.match(
  redis.call('SET', heartbeat, string.format('%.0f %.0f', now, workerNow), 'GET') or '',
  '^(%d+) ?(%d*)$')
last = tonumber(last) or now
local gapMs = math.min(now - last, workerNow - (tonumber(lastOfWorker) or last)) - tonumber(ARGV[2])
if gapMs <= ${LONGEST_GAP_MS} then
  if ARGV[3] == '1' then unblockForWaiting(root, workerNow) end
  return 0
end
extendDelays(root, gapMs)
return gapMs
`;

/** Extends delays by the time in which no worker was alive. Otherwise all jobs that came due in
 * that time would run at once when the first worker starts, and a restart of everything would
 * send the driver a burst of calls. A worker whose event loop stands still is alive all the same:
 * if such times extended delays, a lone worker that stands still again and again would never end
 * one. The heartbeat also finds a Redis that takes no writes or does not answer, and every 2 s it
 * unblocks a worker for jobs that wait: the one that was unblocked for them may have frozen. Builds
 * on bullmq-layout.ts. */
export function startHeartbeat(
  link: RedisLink,
  { prefix, queue }: QueuePlace,
  log: Logger,
): Heartbeat {
  const keys = [queueRoot(prefix, queue), heartbeatKey(prefix, queue)];
  let pending: { readonly sinceMs: number; readonly written: Promise<void> } | undefined;
  let wasSilent = false;
  /** Whether the last heartbeat unblocked a worker if jobs waited: every other one does. */
  let unblocks = false;
  let tickedMs = performance.now();
  /** For how long the event loop stood still: by how much the timer is overdue. */
  const stillMs = (): number => Math.max(0, performance.now() - tickedMs - PERIOD_MS);

  const send = async (): Promise<void> => {
    // EVAL, not EVALSHA: a Redis that was restarted does not have the script, and a worker could
    // take jobs before the script is sent again.
    unblocks = !unblocks;
    const args = [...keys, Date.now(), Math.round(stillMs()), unblocks ? '1' : '0'];
    const written = link.redis.eval(WRITE, keys.length, ...args);
    const gapMs = Number(await link.observe('heartbeat', written));
    if (gapMs > 0)
      log.info(
        { queue, gapMs },
        'no worker was alive for a while: delayed jobs wait that much longer',
      );
  };
  const write = (): Promise<void> => {
    pending ??= {
      sinceMs: performance.now(),
      written: send().finally(() => (pending = undefined)),
    };
    return pending.written;
  };
  const writeQuietly = (): void => void write().catch(() => undefined);
  const describeSilence = (): string | undefined => {
    const silentMs = pending === undefined ? 0 : performance.now() - pending.sinceMs;
    return silentMs > LONGEST_ANSWER_MS
      ? `Redis at ${link.address} has not answered for ${Math.round(silentMs / 1000)} s; ` +
          'waiting for it'
      : undefined;
  };
  const timer = setInterval(() => {
    if (link.trouble === undefined) writeQuietly();
    tickedMs = performance.now();
    const isSilent = describeSilence() !== undefined;
    if (isSilent && !wasSilent)
      log.warn({ redis: link.address, queue }, 'Redis does not answer; waiting for it');
    wasSilent = isSilent;
  }, PERIOD_MS);
  // After a reconnect the client sends queued commands first. So the heartbeat reaches Redis before
  // the worker takes any job that came due in between.
  link.redis.on('close', writeQuietly);
  return {
    get trouble() {
      return describeSilence();
    },
    write,
    stop() {
      clearInterval(timer);
      link.redis.off('close', writeQuietly);
    },
  };
}
