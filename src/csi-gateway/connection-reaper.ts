import type { Http2Session, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { Clock } from '../runtime/clock.ts';

/** How long the door waits for its callers. */
export interface ReaperLimits {
  /** From a connection's first byte to its SETTINGS, and for the answer to a ping. */
  readonly replyMs: number;
  /** From a call's headers to the end of its request. */
  readonly requestMs: number;
  /** From the answer to its being taken. */
  readonly answerMs: number;
  /** A connection without calls for so long is asked whether anybody is there. */
  readonly idleMs: number;
  /** Calls that may wait for their callers at once. One more ends the connection that has most of
   * them. */
  readonly maxWaitingCalls: number;
}

/** Generous to callers on a bad network, short for those who only take up room. A call that waits
 * holds up to 25 kB; one of a caller of good will does so for milliseconds. */
export const defaultReaperLimits: ReaperLimits = {
  replyMs: 10_000,
  requestMs: 30_000,
  answerMs: 30_000,
  idleMs: 20_000,
  maxWaitingCalls: 2_000,
};

interface Connection {
  readonly cut: () => void;
  readonly sinceMs: number;
  greeted: boolean;
  streams: number;
  /** Of its streams, those in any phase but work. */
  waiting: number;
  calls: number;
  idleSinceMs: number;
  pingedMs: number | undefined;
  /** Its calls are refused since then. */
  unwelcomeMs: number | undefined;
  isOver: boolean;
}

/** What is awaited of a caller: the rest of its request, or that it takes its answer. */
export type AwaitedStep = 'request' | 'answer';

interface CallState {
  readonly visit: Connection;
  /** work: it is the gateway's turn. reset: nothing is awaited any more but that the caller hears
   * so. */
  phase: AwaitedStep | 'work' | 'reset';
  sinceMs: number;
}

/** Watches over connections and calls, and ends those that keep the gateway waiting. One timer for
 * all: a timer for each call would cost more than the rest of its bookkeeping. */
export class ConnectionReaper {
  readonly #limits: ReaperLimits;
  readonly #clock: Clock;
  readonly #onTooLate: (stream: ServerHttp2Stream, wait: AwaitedStep) => void;
  readonly #onTooMany: (session: Http2Session) => void;
  readonly #visits = new Map<Http2Session, Connection>();
  readonly #errands = new Map<ServerHttp2Stream, CallState>();
  readonly #timer: NodeJS.Timeout;
  #waiting = 0;

  /** @param onTooLate  decides what such a stream is told; called once per wait, with the one that
   *                   took too long
   *  @param onTooMany  is told which connection has to go, because too many calls wait and it has
   *                    most of them */
  constructor(options: {
    readonly limits: ReaperLimits;
    readonly clock: Clock;
    readonly onTooLate: (stream: ServerHttp2Stream, wait: AwaitedStep) => void;
    readonly onTooMany: (session: Http2Session) => void;
  }) {
    this.#limits = options.limits;
    this.#clock = options.clock;
    this.#onTooLate = options.onTooLate;
    this.#onTooMany = options.onTooMany;
    const { replyMs, requestMs, answerMs, idleMs } = options.limits;
    this.#timer = setInterval(
      () => this.#look(),
      Math.max(10, Math.min(1_000, Math.min(replyMs, requestMs, answerMs, idleMs) / 4)),
    );
    this.#timer.unref();
  }

  /** A connection came.
   * @param cut  ends it, whatever it is doing */
  addConnection(session: ServerHttp2Session, cut: () => void): void {
    const nowMs = this.#clock.nowMs();
    const visit: Connection = {
      cut,
      sinceMs: nowMs,
      greeted: false,
      streams: 0,
      waiting: 0,
      calls: 0,
      idleSinceMs: nowMs,
      pingedMs: undefined,
      unwelcomeMs: undefined,
      isOver: false,
    };
    this.#visits.set(session, visit);
    session.once('remoteSettings', () => (visit.greeted = true));
    session.once('close', () => this.#left(session));
  }

  /** Ends the connection that is missed least, to make room: one without a call under way, if
   * possible one that never made any, the longest quiet of them.
   * @returns whether there was one */
  evictIdle(): boolean {
    const quiet = [...this.#visits].filter(
      ([session, visit]) => visit.streams === 0 && !session.destroyed,
    );
    const worth = (visit: Connection): readonly [number, number] => [
      Math.min(visit.calls, 1),
      visit.idleSinceMs,
    ];
    const [least] = quiet.sort(
      ([, a], [, b]) => worth(a)[0] - worth(b)[0] || worth(a)[1] - worth(b)[1],
    );
    least?.[1].cut();
    return least !== undefined;
  }

  /** Every call of it is refused from now on; it goes when it has been quiet for a while. Not at
   * once: node's GOAWAY ignores what crosses it on the wire (it can't announce itself first, as RFC
   * 9113 §6.8 advises), and such a call would look ambiguous to its caller. */
  retire(session: Http2Session): void {
    const visit = this.#visits.get(session);
    if (visit !== undefined) visit.unwelcomeMs ??= this.#clock.nowMs();
  }

  /** A call came; its request is awaited. */
  addCall(stream: ServerHttp2Stream): void {
    const visit = stream.session === undefined ? undefined : this.#visits.get(stream.session);
    if (visit === undefined) return;
    visit.streams += 1;
    visit.calls += 1;
    this.#errands.set(stream, { visit, phase: 'work', sinceMs: 0 });
    this.#enter(stream, 'request');
    stream.once('close', () => {
      this.#enter(stream, 'work');
      this.#errands.delete(stream);
      visit.streams -= 1;
      visit.idleSinceMs = this.#clock.nowMs();
    });
  }

  /** The request is whole: it is the gateway's turn, for as long as the caller's deadline allows.
   */
  markWorking(stream: ServerHttp2Stream): void {
    this.#enter(stream, 'work');
  }

  /** The answer was given; it is awaited that the caller takes it. */
  markAnswered(stream: ServerHttp2Stream): void {
    this.#enter(stream, 'answer');
  }

  /** The caller was told by RST_STREAM that the call is over. */
  markReset(stream: ServerHttp2Stream): void {
    this.#enter(stream, 'reset');
  }

  /** Ends the watch. */
  close(): void {
    clearInterval(this.#timer);
  }

  #enter(stream: ServerHttp2Stream, phase: CallState['phase']): void {
    const errand = this.#errands.get(stream);
    if (errand === undefined || errand.visit.isOver) return;
    const more = Number(phase !== 'work') - Number(errand.phase !== 'work');
    errand.phase = phase;
    errand.sinceMs = this.#clock.nowMs();
    errand.visit.waiting += more;
    this.#waiting += more;
    if (more > 0 && this.#waiting > this.#limits.maxWaitingCalls) this.#makeRoom();
  }

  #makeRoom(): void {
    const [session, visit] = [...this.#visits].reduce((a, b) =>
      b[1].waiting > a[1].waiting ? b : a,
    );
    this.#left(session);
    this.#onTooMany(session);
    visit.cut();
  }

  /** The connection is gone, and its calls with it, though their own 'close' comes a little later.
   */
  #left(session: Http2Session): void {
    const visit = this.#visits.get(session);
    if (visit === undefined) return;
    this.#visits.delete(session);
    this.#waiting -= visit.waiting;
    visit.isOver = true;
  }

  #look(): void {
    const nowMs = this.#clock.nowMs();
    const { replyMs, requestMs, answerMs, idleMs } = this.#limits;
    for (const [session, visit] of this.#visits) {
      const quietMs = visit.streams > 0 ? 0 : nowMs - visit.idleSinceMs;
      if (!visit.greeted && nowMs - visit.sinceMs > replyMs) visit.cut();
      else if (visit.pingedMs !== undefined && nowMs - visit.pingedMs > replyMs) visit.cut();
      else if (
        visit.unwelcomeMs !== undefined &&
        Math.min(quietMs, nowMs - visit.unwelcomeMs) > replyMs
      )
        session.close();
      else if (visit.pingedMs === undefined && quietMs > idleMs) ping(session, visit, nowMs);
    }
    for (const [stream, { phase, sinceMs, visit }] of this.#errands) {
      if (phase === 'work' || nowMs - sinceMs <= (phase === 'request' ? requestMs : answerMs))
        continue;
      // One that does not even take a reset reads nothing at all.
      if (phase === 'reset') visit.cut();
      else this.#onTooLate(stream, phase);
    }
  }
}

/** A caller that is gone without a word does not answer; one that only waits does. */
function ping(session: Http2Session, visit: Connection, nowMs: number): void {
  visit.pingedMs = nowMs;
  try {
    session.ping((error) => {
      if (error !== null) return;
      visit.pingedMs = undefined;
      visit.idleSinceMs = nowMs;
    });
  } catch {
    visit.cut();
  }
}
