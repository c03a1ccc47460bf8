import { type Job, PRIORITY_LIMIT, type Queue } from 'bullmq';

/** BullMQ's highest priority number, which runs last; 1 runs first, 0 is no priority. */
const LAST_PRIORITY = PRIORITY_LIMIT;
const PAGE_JOBS = 1_000;

/** Fair order over namespaces by virtual time; its ticks are BullMQ's priorities. A namespace's
 * next key is due one tick after its previous one, or after what runs now, whichever is later. So a
 * namespace with a single key waits for one round, however many keys the others have queued. */
export class Fairness {
  #nowTick = 0;
  #highestTick = 0;
  readonly #lastTicks = new Map<string, number>();

  /** Virtual time: workers have taken all that is due up to it. */
  get nowTick(): number {
    return this.#nowTick;
  }

  /** The priority of this namespace's next key. */
  next(namespace: string): number {
    const tick = Math.max(this.#nowTick, this.#lastTicks.get(namespace) ?? 0) + 1;
    this.#lastTicks.set(namespace, tick);
    this.#highestTick = Math.max(this.#highestTick, tick);
    // At the limit keys run in the order of their arrival, so none waits for ever.
    return Math.min(tick, LAST_PRIORITY);
  }

  /** Takes a tick back that was not used, since the key already had a job. */
  refund(namespace: string): void {
    const tick = this.#lastTicks.get(namespace);
    if (tick !== undefined) this.#lastTicks.set(namespace, tick - 1);
  }

  /** Advances virtual time to what is queued; it never goes back.
   * @param lowest priority of the key that runs next; undefined when none waits, so workers have
   *   taken all that was handed out */
  observe(lowest: number | undefined): void {
    const tick = lowest === undefined ? this.#highestTick : lowest - 1;
    if (tick <= this.#nowTick) return;
    this.#nowTick = tick;
    this.#highestTick = Math.max(this.#highestTick, tick);
    for (const [namespace, last] of this.#lastTicks) {
      if (last <= tick) this.#lastTicks.delete(namespace);
    }
  }

  /** By how much to lower all ticks so that the limit is not reached; 0 while there is room. */
  get rebaseTicks(): number {
    return this.#nowTick > LAST_PRIORITY / 2 ? this.#nowTick : 0;
  }

  /** Lowers everything here by `ticks`, as was done with the priorities in Redis. */
  rebase(ticks: number): void {
    this.#nowTick = Math.max(0, this.#nowTick - ticks);
    this.#highestTick = Math.max(0, this.#highestTick - ticks);
    for (const [namespace, last] of this.#lastTicks)
      this.#lastTicks.set(namespace, Math.max(0, last - ticks));
  }
}

/** Advances virtual time to what the queue holds. Moves its zero before the priorities run out:
 * once in a million jobs. No job may be added meanwhile. */
export async function syncFairness(queue: Queue, fairness: Fairness): Promise<void> {
  const [next] = await queue.getPrioritized(0, 0);
  fairness.observe(next?.priority);
  const ticks = fairness.rebaseTicks;
  if (ticks === 0) return;
  await lowerPriorities(queue, ticks);
  fairness.rebase(ticks);
}

/** Lowers the priority of every job that has one, to 1 at least. Their order stays. */
async function lowerPriorities(queue: Queue, ticks: number): Promise<void> {
  const lower = async (job: Job): Promise<void> => {
    if (job.priority > 0) await job.changePriority({ priority: Math.max(1, job.priority - ticks) });
  };
  for (const type of ['prioritized', 'delayed', 'active'] as const) {
    // A job that was lowered keeps its place in the list.
    for (let from = 0; ; from += PAGE_JOBS) {
      const jobs = await queue.getJobs([type], from, from + PAGE_JOBS - 1, true);
      if (jobs.length === 0) break;
      await Promise.all(jobs.map(lower));
    }
  }
}
