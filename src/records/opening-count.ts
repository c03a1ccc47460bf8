/* The opening count: how many records one process has opened, kept in Redis by the same scripts
 * that open them (record rule 8). Only that process advances it, so a count that is lower than
 * Redis has told the process shows that Redis went back to an earlier state and lost an opening of
 * this process: a failover to a replica that lagged behind, or a restart without the last writes.
 * The count expires after a day without the process.
 *
 * The process that finds a loss withdraws the confirmation of Redis' data, unless somebody has
 * found it already. Nothing is opened then until the leader has begun a new data epoch (record
 * rule 6).
 *
 * Arguments
 * confirmed    the highest count that Redis has told this process
 * countedIn    the data epoch in which that was
 * processName  shown to operators */

/** Seconds after which the count of a process that has ended expires: a day. */
const EXPIRES_S = 86_400;

export const COUNT_ARGS = { confirmed: 'number', countedIn: 'text', processName: 'text' } as const;

/** Fields of an answer that advanced the count. */
export const COUNTED = { count: 'number' } as const;

/** The answer of NOTICE_LOSS. */
export const WENT_BACK = { 'went-back': COUNTED } as const;

/** Lua: answers `went-back` where Redis has lost an opening of this process. Defines countOpening,
 * which advances the count and returns it. */
export const NOTICE_LOSS = noticeLoss("redis.call('GET', countKey)");

/** Lua: the same, and keeps the count from expiring. */
export const NOTICE_LOSS_AND_KEEP = noticeLoss(`redis.call('GETEX', countKey, 'EX', ${EXPIRES_S})`);

function noticeLoss(readCount: string): string {
  return `
local counted = tonumber(${readCount} or 0)
if counted < confirmed then
  if redis.call('HGET', dataEpochKey, 'epoch') == countedIn then
    redis.call('HDEL', dataEpochKey, 'epoch')
    redis.call('HSET', dataEpochKey, 'withdrawnBy', processName)
  end
  return {'went-back', 'count', counted}
end
local function countOpening()
  redis.call('SET', countKey, counted + 1, 'EX', ${EXPIRES_S})
  return counted + 1
end
`;
}

/** What Redis has told this process of its count. */
export class OpeningCount {
  readonly #processName: string;
  #confirmed = 0;
  #countedIn = '';

  constructor(processName: string) {
    this.#processName = processName;
  }

  /** The arguments of COUNT_ARGS. */
  get args() {
    return {
      confirmed: this.#confirmed,
      countedIn: this.#countedIn,
      processName: this.#processName,
    };
  }

  /** Takes note of an answer that advanced the count, in the order in which Redis answered. Each
   * count is higher than the one before; otherwise Redis went back between two commands that were
   * under way together, and the next script answers `went-back`.
   * @returns whether the count is higher */
  confirm({ count, dataEpoch }: { readonly count: number; readonly dataEpoch: string }) {
    const isHigher = count > this.#confirmed;
    this.#confirmed = isHigher ? count : Number.MAX_SAFE_INTEGER;
    this.#countedIn = dataEpoch;
    return isHigher;
  }

  /** Goes on from the count that Redis has after a loss. */
  resumeFrom(count: number): void {
    this.#confirmed = count;
  }
}
