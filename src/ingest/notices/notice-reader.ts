import { type Clock, signalWithin, unlessAborted } from '../../runtime/clock.ts';
import { Listeners } from '../../runtime/listeners.ts';
import type { Logger } from '../../runtime/log.ts';
import { PollLoop } from '../../runtime/poll-loop.ts';
import type { NoticePosition, NoticeStream } from '../../webhooks/notices.ts';
import type { LookQueue } from './look-queue.ts';

export interface NoticeReaderOptions {
  readonly stream: Pick<NoticeStream, 'markEnd' | 'readNotices'>;
  readonly looks: Pick<LookQueue, 'add' | 'clear' | 'due'>;
  /** Whether this process leads a driver. Notices are read only then. */
  readonly isLeading: () => boolean;
  readonly clock: Clock;
  readonly log: Logger;
}

/** No more notices are read while so many objects wait for their look. The stream keeps them, and
 * if it is cut meanwhile, a resync follows. */
const MAX_DUE = 2_000;
/** How long one command waits for notices. */
const BLOCK_MS = 4_000;
const IDLE_MS = 1_000;
/** How long a list of everything waits for the reader, as while Redis refuses to be read. */
const LONGEST_WAIT_MS = 5_000;
const BUSY_MS = 20;
/** Pause between two reports of lost notices. Each costs a list of everything. */
const GAP_PAUSE_MS = 30_000;

/** Reads the notices of all senders while this process leads a driver, from the moment on at which
 * it begins: what happened before is for the resync of a new leader. */
export class NoticeReader {
  /** Notified when notices were lost, so that a resync is needed. */
  readonly lost = new Listeners<void>();
  readonly #options: NoticeReaderOptions;
  readonly #loop: PollLoop;
  /** Where to go on; undefined: not reading. */
  #position: NoticePosition | undefined;
  /** Called when a position is known. */
  #waiting: (() => void)[] = [];
  /** Whether somebody waited in vain for a position. */
  #hasMissed = false;
  #isGapPending = false;
  #nextGapMs = 0;

  constructor(options: NoticeReaderOptions) {
    const { clock, log } = options;
    this.#options = options;
    this.#loop = new PollLoop({
      step: () => this.#step(),
      onError: (error) => log.debug({ err: error }, 'could not read notices; trying again'),
      periodMs: IDLE_MS,
      clock,
    });
  }

  /** Resolves when a notice that is sent from now on is not missed. Also resolves after 5 s, or
   * when the signal aborts: then what is missed counts as lost. */
  async waitUntilReading(signal: AbortSignal): Promise<void> {
    if (this.#position !== undefined) return;
    const reading = new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#loop.runNow();
    await unlessAborted(reading, signalWithin(signal, LONGEST_WAIT_MS));
    if (this.#position === undefined) this.#hasMissed = true;
  }

  /** Resolves when the command under way has ended; close its connection first. */
  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** @returns the pause before the next step */
  async #step(): Promise<number> {
    const { stream, looks, isLeading } = this.#options;
    if (!isLeading()) {
      this.#position = undefined;
      this.#isGapPending = false;
      looks.clear();
      return IDLE_MS;
    }
    if (this.#position === undefined) {
      this.#position = await stream.markEnd();
      this.#isGapPending ||= this.#hasMissed;
      this.#hasMissed = false;
    }
    for (const tell of this.#waiting.splice(0)) tell();
    if (looks.due >= MAX_DUE) return BUSY_MS;
    const { notices, position, isGap } = await stream.readNotices(this.#position, BLOCK_MS);
    this.#position = position;
    for (const notice of notices) looks.add(notice);
    this.#isGapPending ||= isGap;
    this.#reportLoss();
    return 0;
  }

  #reportLoss(): void {
    const { clock, log } = this.#options;
    const nowMs = clock.nowMs();
    if (!this.#isGapPending || nowMs < this.#nextGapMs) return;
    this.#isGapPending = false;
    this.#nextGapMs = nowMs + GAP_PAUSE_MS;
    log.warn('notices were lost: too many came at once, or Redis lost data; listing all objects');
    this.lost.notify();
  }
}
