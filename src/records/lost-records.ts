import { performance } from 'node:perf_hooks';
import type { JobKey } from '../queue/contract.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { defineNamedScript } from '../redis/named-script.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import { askRedis } from './ask-redis.ts';
import { volumeRecordKey } from './key-names.ts';
import { encodeJob } from './open-records.ts';
import { CLOCK_ARGS, ClockMover, MOVE_CLOCK, RECORD_NOW } from './record-clock.ts';
import * as shared from './record-scripts.ts';
import type { RequestTexts } from './stored-request.ts';

/* What a worker process does about records that Redis has lost (record rules 6 and 8). It remembers
 * the creations that it opened and did not see closed, checks them every two seconds, and writes
 * those again that Redis has lost. README.md draws the states of a loss. */

/** Reads the states of many records in one step, and whether Redis went back. Moves the record
 * clock on.
 *
 * Args      ids     record ids, separated by spaces
 *           prefix  what their keys begin with
 * Answers   checked   `states`: for each id `o` open, `c` closed, `-` no record; `dataEpoch`:
 *                     that of Redis' data, '' while none is confirmed, or without ids
 *           or WENT_BACK */
const checkLeftOpen = defineNamedScript({
  keys: ['dataEpochKey', 'countKey'],
  args: { ids: 'text', prefix: 'text', ...CLOCK_ARGS, ...shared.COUNT_ARGS },
  answers: { ...shared.WENT_BACK, checked: { states: 'text', dataEpoch: 'text' } },
  lua: `${MOVE_CLOCK}${shared.NOTICE_LOSS_AND_KEEP}
if ids == '' then return {'checked', 'states', '', 'dataEpoch', ''} end
local letters = {creating = 'o', suspect = 'o'}
local states = {}
for id in string.gmatch(ids, '%S+') do
  local state = redis.call('HGET', prefix .. id, 'state')
  states[#states + 1] = state and (letters[state] or 'c') or '-'
end
return {'checked', 'states', table.concat(states),
  'dataEpoch', redis.call('HGET', dataEpochKey, 'epoch') or ''}
`,
});

/** Any state but `deleting` to `creating`, ambiguous and without owner, where Redis has lost the
 * creation that a process left open. A missing record was lost if the data epoch has changed since
 * it was opened; otherwise another run closed it. Where Redis has lost an opening of this process,
 * no state that Redis has now tells how the call ended, `gone` included: the call may create the
 * volume again. A run that opened the record before the loss becomes owner no more, so it can't
 * clear the mark.
 *
 * Args      dataEpoch    as it was when the record was opened
 *           isLost       1 where Redis has lost an opening of this process
 * Answers   open         it is still open, a deletion is under way, or no data epoch is confirmed
 *           closed       another run closed it
 *           rewritten    in the current data epoch
 *           or WENT_BACK */
const rewriteLost = defineNamedScript({
  keys: shared.OPENING_KEYS,
  args: {
    id: 'text',
    job: 'text',
    ownMs: 'number',
    dataEpoch: 'text',
    isLost: 'text',
    ...shared.COUNT_ARGS,
    ...shared.REQUEST,
  },
  answers: {
    ...shared.WENT_BACK,
    open: {},
    closed: {},
    rewritten: { dataEpoch: 'text', ...shared.COUNTED },
  },
  lua: `${RECORD_NOW}${shared.NOTICE_LOSS}
local current = redis.call('HGET', dataEpochKey, 'epoch')
if not current then return {'open'} end
local state = redis.call('HGET', recordKey, 'state')
local isOpen = state == 'creating' or state == 'suspect'
if isLost ~= '1' then
  if state then return {isOpen and 'open' or 'closed'} end
  if current == dataEpoch then return {'closed'} end
elseif state == 'deleting' then
  return {'open'}
end
local call = math.max(tonumber(redis.call('HGET', recordKey, 'call') or 0), now + ownMs)
if not isOpen then
  redis.call('DEL', recordKey)
  redis.call('HSET', recordKey, 'v', '1', 'n', '1', 'since', redisNow, 'key', job,
    'req', request, 'skel', pvTemplate, 'secret', secret, 'ep', endpoint, 'seal', seal)
end
redis.call('HSET', recordKey, 'state', 'creating', 'owner', '', 'until', '0', 'amb', '1',
  'st', '0', 'call', call, 'prev', '')
redis.call('HDEL', recordKey, 'ans')
redis.call('HSETNX', openKey, id, job)
return {'rewritten', 'dataEpoch', current, 'count', countOpening()}
`,
});

/** An answer that advanced the opening count of this process. */
interface Counted {
  readonly count: number;
  /** The epoch of Redis' data when the record was opened. */
  readonly dataEpoch: string;
}

/** A creation as a run has just opened it. */
interface Opened extends Counted {
  readonly job: JobKey;
  readonly texts: RequestTexts;
}

/** A creation that a run of this process opened and did not see closed. */
interface LeftOpen extends Opened {
  /** When the run that opened it has ended or may send no call any more, by performance.now(). */
  readonly mayCallUntilMs: number;
  /** Redis went back and lost this opening (record rule 8). */
  readonly isLost: boolean;
}

interface LeftOpenOptions extends RedisPlace {
  readonly ownMs: number;
  readonly keys: Readonly<Record<Exclude<shared.RecordKey, 'recordKey'>, string>>;
  readonly processName: string;
}

/** Records whose states are read in one script: Redis does nothing else meanwhile. */
const CHECKED_AT_ONCE = 1_000;
const REWRITTEN_AT_ONCE = 100;

/** The creations that this process left open, and its opening count. */
export class LeftOpenCreations {
  readonly #options: LeftOpenOptions;
  readonly #clock = new ClockMover();
  readonly #byId = new Map<string, LeftOpen>();
  /** The highest opening count that Redis has told this process, and in which data epoch. */
  #confirmed: Counted = { count: 0, dataEpoch: '' };

  constructor(options: LeftOpenOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#byId.size;
  }

  get countArgs() {
    const { count: confirmed, dataEpoch: countedIn } = this.#confirmed;
    return { confirmed, countedIn, processName: this.#options.processName };
  }

  /** Takes note of an answer that advanced the opening count, in the order in which Redis answered.
   * Each count is higher than the one before; otherwise Redis went back between two commands that
   * were under way together, and the next script answers `went-back`. */
  counted({ count, dataEpoch }: Counted): void {
    const isHigher = count > this.#confirmed.count;
    this.#confirmed = { count: isHigher ? count : Number.MAX_SAFE_INTEGER, dataEpoch };
    if (!isHigher) this.#markLostAfter(count - 1);
  }

  /** Redis went back, to when it had that many openings of this process. */
  wentBack(count: number): void {
    this.#confirmed = { ...this.#confirmed, count };
    this.#markLostAfter(count);
  }

  /** What Redis has now tells nothing of the openings after that count. */
  #markLostAfter(count: number): void {
    for (const [id, left] of this.#byId)
      if (left.count > count) this.#byId.set(id, { ...left, isLost: true });
  }

  /** Remembers a creation that a run has just opened with its own request; unless one from before a
   * loss is remembered: the call of that one may still create the volume, and the new record is
   * removed if nothing is sent. */
  addOpened(id: string, opened: Opened): void {
    const before = this.#byId.get(id);
    if (before === undefined || (before.dataEpoch === opened.dataEpoch && !before.isLost))
      this.addTakenUp(id, opened);
  }

  /** Remembers a creation that a run has just taken up: its record, which Redis has, covers all
   * earlier calls. */
  addTakenUp(id: string, opened: Opened): void {
    const mayCallUntilMs = performance.now() + this.#options.ownMs;
    this.#byId.set(id, { ...opened, mayCallUntilMs, isLost: false });
  }

  /** The run that opened it sends no call any more. */
  runEnded(id: string): void {
    const left = this.#byId.get(id);
    if (left !== undefined) this.#byId.set(id, { ...left, mayCallUntilMs: 0 });
  }

  /** The creation has ended. */
  forget(id: string): void {
    this.#byId.delete(id);
  }

  /** Drops the creations that are closed by now, and writes those again that Redis has lost. Also
   * notices whether Redis went back, and moves the record clock on.
   * @returns the jobs whose records were written again
   * @throws RecordsUnavailable when Redis does not answer */
  async rewrite(): Promise<readonly JobKey[]> {
    const lost: string[] = [];
    const ids = [...this.#byId.keys()];
    for (let from = 0; from === 0 || from < ids.length; from += CHECKED_AT_ONCE) {
      const found = await this.#check(ids.slice(from, from + CHECKED_AT_ONCE));
      // Those that were checked already may be lost too.
      if (found === 'went-back') return this.rewrite();
      lost.push(...found);
    }
    const rewritten: JobKey[] = [];
    for (let from = 0; from < lost.length; from += REWRITTEN_AT_ONCE) {
      const group = lost.slice(from, from + REWRITTEN_AT_ONCE);
      const jobs = await Promise.all(group.map((id) => this.#rewriteOne(id)));
      rewritten.push(...jobs.filter((job) => job !== undefined));
    }
    return rewritten;
  }

  /** Drops those of these creations that are closed by now.
   * @returns those that Redis has lost; or that it went back */
  async #check(ids: readonly string[]): Promise<readonly string[] | 'went-back'> {
    const { redis, prefix, driver, keys } = this.#options;
    const before = ids.map((id) => this.#byId.get(id));
    const args = { ids: ids.join(' '), prefix: volumeRecordKey(prefix, driver, '') };
    const answer = await this.#clock.move((elapsedMs) =>
      askRedis(checkLeftOpen.run(redis, keys, { ...args, elapsedMs, ...this.countArgs })),
    );
    if (answer.kind === 'went-back') {
      this.wentBack(answer.count);
      return 'went-back';
    }
    const { states, dataEpoch } = answer;
    return ids.filter((id, at) => {
      const left = before[at];
      // A run of this process may have opened the record again meanwhile.
      if (left === undefined || this.#byId.get(id) !== left) return false;
      const found = judge(left, states.charAt(at), dataEpoch);
      if (found === 'closed') this.forget(id);
      return found === 'lost';
    });
  }

  /** @returns the job of a record that was written again for the first time */
  async #rewriteOne(id: string): Promise<JobKey | undefined> {
    const { redis, prefix, driver, ownMs, keys } = this.#options;
    const left = this.#byId.get(id);
    if (left === undefined) return undefined;
    const { job, texts, dataEpoch } = left;
    const isLost = left.isLost ? '1' : '0';
    const args = { id, job: encodeJob(job), ownMs, dataEpoch, isLost, ...texts };
    const recordKey = volumeRecordKey(prefix, driver, id);
    const answer = await askRedis(
      rewriteLost.run(redis, { ...keys, recordKey }, { ...args, ...this.countArgs }),
    );
    if (answer.kind === 'went-back') this.wentBack(answer.count);
    if (answer.kind === 'rewritten') this.counted(answer);
    if (this.#byId.get(id) !== left) return undefined;
    if (answer.kind === 'closed') this.forget(id);
    if (answer.kind !== 'rewritten') return undefined;
    // From now on a missing record means again that another run closed it. But while the run that
    // had opened it may still send its call, it is written again with each check, since the success
    // of another run proves nothing about that call.
    const { count, dataEpoch: rewrittenIn } = answer;
    const isStillLost = left.isLost && performance.now() < left.mayCallUntilMs;
    this.#byId.set(id, { ...left, dataEpoch: rewrittenIn, count, isLost: isStillLost });
    return rewrittenIn === dataEpoch ? undefined : job;
  }
}

/** Judges a creation that was left open by its record.
 * @param letter  of the record's state, as checkLeftOpen answers
 * @param dataEpoch  of Redis' data now; '' while none is confirmed */
function judge(left: LeftOpen, letter: string, dataEpoch: string): 'open' | 'closed' | 'lost' {
  if (dataEpoch === '' && (left.isLost || letter === '-')) return 'open';
  if (left.isLost) return 'lost';
  if (letter !== '-') return letter === 'o' ? 'open' : 'closed';
  return dataEpoch === left.dataEpoch ? 'closed' : 'lost';
}

const PERIOD_MS = 2_000;
/** Records that are checked in each period at most. A thousand cost Redis some 2 ms and the worker
 * 1 ms, so the checks take less than 1 % of a core, however many records are open. */
const RECORDS_PER_PERIOD = 5_000;

/** Checks every two seconds (less often where more than 5,000 are open) what this process left
 * open, and when `runNow` is called (Redis can be reached again); never twice at once.
 * @param isRedisOurs  whether Redis belongs to our cluster; otherwise nothing is written */
export function startLostRecords(
  records: { rewriteLostRecords(): Promise<readonly JobKey[]>; readonly leftOpen: number },
  isRedisOurs: () => boolean,
  log: Logger,
): PollLoop {
  return new PollLoop({
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
  });
}
