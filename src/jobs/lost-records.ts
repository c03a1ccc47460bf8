import type { VolumeRecords } from '../records/volume-record.ts';
import { systemClock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';

interface Options {
  readonly records: Pick<VolumeRecords, 'rewriteLostRecords' | 'leftOpen'>;
  /** Whether Redis belongs to our cluster; otherwise nothing is written. */
  readonly isRedisOurs: () => boolean;
  readonly log: Logger;
}

const PERIOD_MS = 2_000;
/** Records that are checked in each period at most. A thousand cost Redis some 2 ms and the worker
 * 1 ms, so the checks take less than 1 % of a core, however many records are open. */
const RECORDS_PER_PERIOD = 5_000;

export type LostRecords = ReturnType<typeof startLostRecords>;

/** Writes records again that this process left open and that Redis lost (record rules 6 and 8):
 * checks them every two seconds (less often where more than 5,000 are open), and when `checkNow`
 * is called (Redis can be reached again); never twice at once. */
export function startLostRecords({ records, isRedisOurs, log }: Options) {
  const loop = new PollLoop({
    step: async () => {
      if (!isRedisOurs()) return undefined;
      const rewritten = await records.rewriteLostRecords();
      if (rewritten.length > 0)
        log.warn({ records: rewritten.length }, 'wrote volume records again that Redis had lost');
      else if (records.leftOpen > RECORDS_PER_PERIOD)
        return (PERIOD_MS * records.leftOpen) / RECORDS_PER_PERIOD;
      return undefined;
    },
    onError: (error) =>
      log.debug({ err: error }, 'the open records could not be checked; trying again'),
    periodMs: PERIOD_MS,
    isAligned: true,
    clock: systemClock,
  });
  return {
    checkNow: () => loop.runNow(),
    stop: () => loop.stop(),
  };
}
