import { performance } from 'node:perf_hooks';
import type { JobKey } from '../queue/contract.ts';
import type { RequestTexts } from './stored-request.ts';

/** A creation that a run of this process opened and did not see closed. */
export interface LeftOpen {
  readonly job: JobKey;
  readonly texts: RequestTexts;
  /** The epoch of Redis' data when the record was opened. */
  readonly dataEpoch: string;
  /** The opening count of this process with that opening. */
  readonly count: number;
  /** When the run that opened it has ended or may send no call any more, by performance.now(). */
  readonly mayCallUntilMs: number;
  /** Redis went back and lost this opening (record rule 8). */
  readonly isLost: boolean;
}

/** A creation as a run has just opened it. */
type Opened = Pick<LeftOpen, 'job' | 'texts' | 'dataEpoch' | 'count'>;

/** What a check of Redis shows of a creation that was left open. */
type Found = 'open' | 'closed' | 'lost';

/** The creations that this process left open, by record id: what it writes again when Redis has
 * lost it (record rules 6 and 8). */
export class LeftOpenCreations {
  readonly #byId = new Map<string, LeftOpen>();
  readonly #ownMs: number;

  /** @param ownMs  how long a run owns its record */
  constructor(ownMs: number) {
    this.#ownMs = ownMs;
  }

  get size(): number {
    return this.#byId.size;
  }

  get ids(): readonly string[] {
    return [...this.#byId.keys()];
  }

  get(id: string): LeftOpen | undefined {
    return this.#byId.get(id);
  }

  /** Remembers a creation that a run has just opened with its own request; unless one from before a
   * loss is remembered: the call of that one may still create the volume, and the new record is
   * removed if nothing is sent. */
  addOpened(id: string, opened: Opened): void {
    const before = this.#byId.get(id);
    if (before === undefined || (before.dataEpoch === opened.dataEpoch && !before.isLost))
      this.#add(id, opened);
  }

  /** Remembers a creation that a run has just taken up: its record, which Redis has, covers all
   * earlier calls. */
  addTakenUp(id: string, opened: Opened): void {
    this.#add(id, opened);
  }

  #add(id: string, opened: Opened): void {
    const mayCallUntilMs = performance.now() + this.#ownMs;
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

  /** Redis went back, to when it had that many openings of this process: what it has now tells
   * nothing of the later ones. */
  markLostAfter(count: number): void {
    for (const [id, left] of this.#byId)
      if (left.count > count) this.#byId.set(id, { ...left, isLost: true });
  }

  /** Judges a creation by its record.
   * @param letter  of the record's state, as checkLeftOpen answers
   * @param dataEpoch  of Redis' data now; '' while none is confirmed */
  judge({ isLost, dataEpoch: before }: LeftOpen, letter: string, dataEpoch: string): Found {
    if (dataEpoch === '' && (isLost || letter === '-')) return 'open';
    if (isLost) return 'lost';
    if (letter !== '-') return letter === 'o' ? 'open' : 'closed';
    return dataEpoch === before ? 'closed' : 'lost';
  }

  /** The record was written again, as `at` says: a missing record means again that
   * another run closed it. While the run that had opened it may still send its call, it is written
   * again with each check, since the success of another run proves nothing about that call. */
  rewritten(id: string, left: LeftOpen, at: Pick<LeftOpen, 'dataEpoch' | 'count'>): void {
    const isLost = left.isLost && performance.now() < left.mayCallUntilMs;
    const { dataEpoch, count } = at;
    this.#byId.set(id, { ...left, dataEpoch, count, isLost });
  }
}
