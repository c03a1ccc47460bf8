import type { Redis } from 'ioredis';
import type { JobKey } from '../queue/contract.ts';
import { askRedis } from './ask-redis.ts';
import { volumeRecordKey } from './key-names.ts';
import type { LeftOpenCreations } from './left-open.ts';
import { checkLeftOpen, rewriteLost } from './lost-record-scripts.ts';
import { encodeJob } from './open-jobs.ts';
import type { OpeningCount } from './opening-count.ts';
import { ClockMover } from './record-clock.ts';
import type { RecordKey } from './record-scripts.ts';

interface LostCreationsOptions {
  readonly redis: Redis;
  readonly prefix: string;
  readonly driver: string;
  readonly ownMs: number;
  readonly keys: Readonly<Record<Exclude<RecordKey, 'recordKey'>, string>>;
  readonly leftOpen: LeftOpenCreations;
  readonly count: OpeningCount;
}

/** Records whose states are read in one script: Redis does nothing else meanwhile. */
const CHECKED_AT_ONCE = 1_000;
/** Records that are written again at a time. */
const REWRITTEN_AT_ONCE = 100;

/** Finds which of the creations that this process left open Redis has lost, and writes those again
 * (record rules 6 and 8). */
export class LostCreations {
  readonly #options: LostCreationsOptions;
  readonly #clock = new ClockMover();

  constructor(options: LostCreationsOptions) {
    this.#options = options;
  }

  /** Drops the creations that are closed by now, and writes those again that Redis has lost. Also
   * notices whether Redis went back, and moves the record clock on.
   * @returns the jobs whose records were written again
   * @throws RecordsUnavailable when Redis does not answer */
  async rewrite(): Promise<readonly JobKey[]> {
    const lost: string[] = [];
    const { ids } = this.#options.leftOpen;
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

  /** Takes note of an answer that advanced the opening count, before what it opened is added. */
  counted(answer: { readonly count: number; readonly dataEpoch: string }): void {
    const { count, leftOpen } = this.#options;
    if (!count.confirm(answer)) leftOpen.markLostAfter(answer.count - 1);
  }

  /** Redis went back.
   * @param count  of this process, as Redis has it now */
  wentBack(count: number): void {
    this.#options.count.resumeFrom(count);
    this.#options.leftOpen.markLostAfter(count);
  }

  /** Drops those of these creations that are closed by now.
   * @returns those that Redis has lost; or that it went back */
  async #check(ids: readonly string[]): Promise<readonly string[] | 'went-back'> {
    const { redis, prefix, driver, keys, leftOpen, count } = this.#options;
    const before = ids.map((id) => leftOpen.get(id));
    const args = { ids: ids.join(' '), prefix: volumeRecordKey(prefix, driver, '') };
    const answer = await this.#clock.move((elapsedMs) =>
      askRedis(checkLeftOpen.run(redis, keys, { ...args, elapsedMs, ...count.args })),
    );
    if (answer.kind === 'went-back') {
      this.wentBack(answer.count);
      return 'went-back';
    }
    const { states, dataEpoch } = answer;
    return ids.filter((id, at) => {
      const left = before[at];
      // A run of this process may have opened the record again meanwhile.
      if (left === undefined || leftOpen.get(id) !== left) return false;
      const found = leftOpen.judge(left, states.charAt(at), dataEpoch);
      if (found === 'closed') leftOpen.forget(id);
      return found === 'lost';
    });
  }

  /** @returns the job of a record that was written again for the first time */
  async #rewriteOne(id: string): Promise<JobKey | undefined> {
    const { redis, prefix, driver, ownMs, keys, leftOpen, count } = this.#options;
    const left = leftOpen.get(id);
    if (left === undefined) return undefined;
    const { job, texts, dataEpoch, isLost } = left;
    const answer = await askRedis(
      rewriteLost.run(
        redis,
        { ...keys, recordKey: volumeRecordKey(prefix, driver, id) },
        {
          id,
          job: encodeJob(job),
          ownMs,
          dataEpoch,
          isLost: isLost ? '1' : '0',
          ...count.args,
          ...texts,
        },
      ),
    );
    if (answer.kind === 'went-back') this.wentBack(answer.count);
    if (answer.kind === 'rewritten') this.counted(answer);
    if (leftOpen.get(id) !== left) return undefined;
    if (answer.kind === 'closed') leftOpen.forget(id);
    if (answer.kind !== 'rewritten') return undefined;
    leftOpen.rewritten(id, left, answer);
    return answer.dataEpoch === dataEpoch ? undefined : job;
  }
}
