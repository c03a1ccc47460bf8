import { storeLimits } from '../queue/queues.ts';
import { systemClock } from '../runtime/clock.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import type { DriverDeps } from './driver-deps.ts';

const PERIOD_MS = 5_000;

/** Keeps the limits of the driver's queues in Redis as the flags say, while this ingest leads: at
 * once when they change, and again where Redis has lost them. */
export function openLimits({
  context,
  connections: { link, marker },
  driver,
  queue,
}: DriverDeps): void {
  const { closers, log, flagChanges } = context;
  let { flags } = context;
  const store = async (): Promise<void> => {
    if (!queue.isAllowing || !marker.isOurs || link.trouble !== undefined) return;
    const { redisPrefix: prefix, maxJobsInFlight, maxJobsPerSecond } = flags;
    const limits = { maxInFlight: maxJobsInFlight, maxPerSecond: maxJobsPerSecond };
    if (await storeLimits(link.redis, { prefix, driver: driver.name }, limits))
      log.info({ driver: driver.name, ...limits }, 'the limits of the driver’s queues changed');
  };
  const loop = new PollLoop({
    step: store,
    onError: (error) => log.debug({ err: error }, 'could not store the limits; trying again'),
    periodMs: PERIOD_MS,
    clock: systemClock,
  });
  closers.add('limits', () => loop.stop());
  const end = flagChanges?.subscribe((next) => {
    flags = next;
    loop.runNow();
  });
  if (end !== undefined) closers.add('limits of the file', end);
}
