import { performance } from 'node:perf_hooks';
import type { VolumeRecords } from '../records/volume-record.ts';
import { systemClock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';

interface Options {
  readonly records: Pick<VolumeRecords, 'rewriteLostRecords'>;
  /** Whether Redis belongs to our cluster; otherwise nothing is written. */
  readonly isRedisOurs: () => boolean;
  readonly log: Logger;
}

const PERIOD_MS = 2_000;
/** A check that takes long is repeated less often: it takes 1 % of the time at most. */
const PAUSE_PER_CHECK = 99;

export type LostRecords = ReturnType<typeof startLostRecords>;

/** Writes records again that this process left open and that Redis lost (record rules 6 and 8):
 * checks them every two seconds, and when `checkNow` is called; never twice at once. */
export function startLostRecords({ records, isRedisOurs, log }: Options) {
  const loop = new PollLoop({
    step: async () => {
      if (!isRedisOurs()) return PERIOD_MS;
      const startMs = performance.now();
      const rewritten = await records.rewriteLostRecords();
      if (rewritten.length > 0)
        log.warn({ records: rewritten.length }, 'wrote volume records again that Redis had lost');
      return Math.max(PERIOD_MS, PAUSE_PER_CHECK * (performance.now() - startMs));
    },
    onError: (error) =>
      log.debug({ err: error }, 'the open records could not be checked; trying again'),
    periodMs: PERIOD_MS,
    clock: systemClock,
  });
  return {
    checkNow: () => loop.runNow(),
    stop: () => loop.stop(),
  };
}
