import type { Http2Session, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { Clock } from '../runtime/clock.ts';

/** How long the door waits for its callers. */
export interface PatienceLimits {
  /** From a connection's first byte to its SETTINGS, and for the answer to a ping. */
  readonly greetingMs: number;
  /** From a call's headers to the end of its request. */
  readonly requestMs: number;
  /** From the answer to its being taken. */
  readonly answerMs: number;
  /** A connection without calls for so long is asked whether anybody is there. */
  readonly idleMs: number;
}

/** Generous to callers on a bad network, short for those who only take up room. */
export const defaultPatience: PatienceLimits = { greetingMs: 10_000, requestMs: 30_000, answerMs: 30_000, idleMs: 20_000 };

interface Visit {
  readonly sinceMs: number;
  greeted: boolean;
  streams: number;
  calls: number;
  idleSinceMs: number;
  pingedMs: number | undefined;
  /** Its calls are refused since then. */
  unwelcomeMs: number | undefined;
}

interface Errand {
  phase: 'request' | 'work' | 'answer';
  sinceMs: number;
}

/** Watches over connections and calls, and ends those that keep the gateway waiting. One timer for all: a timer for each call would cost
 * more than the rest of its bookkeeping. */
export class Patience {
  readonly #limits: PatienceLimits;
  readonly #clock: Clock;
  readonly #onTooLate: (stream: ServerHttp2Stream, phase: 'request' | 'answer') => void;
  readonly #visits = new Map<Http2Session, Visit>();
  readonly #errands = new Map<ServerHttp2Stream, Errand>();
  readonly #timer: NodeJS.Timeout;

  /** @param onTooLate  decides what such a stream is told; called once, with the phase that took too long */
  constructor(options: {
    readonly limits: PatienceLimits;
    readonly clock: Clock;
    readonly onTooLate: (stream: ServerHttp2Stream, phase: 'request' | 'answer') => void;
  }) {
    this.#limits = options.limits;
    this.#clock = options.clock;
    this.#onTooLate = options.onTooLate;
    const { greetingMs, requestMs, answerMs, idleMs } = options.limits;
    this.#timer = setInterval(() => this.#look(), Math.max(10, Math.min(1_000, Math.min(greetingMs, requestMs, answerMs, idleMs) / 4)));
    this.#timer.unref();
  }

  /** Connections that are open. */
  get connections(): number {
    return this.#visits.size;
  }

  /** A connection came. */
  arrived(session: ServerHttp2Session): void {
    const nowMs = this.#clock.nowMs();
    const visit: Visit = {
      sinceMs: nowMs,
      greeted: false,
      streams: 0,
      calls: 0,
      idleSinceMs: nowMs,
      pingedMs: undefined,
      unwelcomeMs: undefined,
    };
    this.#visits.set(session, visit);
    session.once('remoteSettings', () => (visit.greeted = true));
    session.once('close', () => this.#visits.delete(session));
  }

  /** Ends the connection that is missed least, to make room: one without a call under way, if possible one that never made any, the
   * longest quiet of them.
   * @returns whether there was one */
  evict(): boolean {
    const quiet = [...this.#visits].filter(([session, visit]) => visit.streams === 0 && !session.destroyed);
    const worth = (visit: Visit): readonly [number, number] => [Math.min(visit.calls, 1), visit.idleSinceMs];
    const [least] = quiet.sort(([, a], [, b]) => worth(a)[0] - worth(b)[0] || worth(a)[1] - worth(b)[1]);
    least?.[0].destroy();
    return least !== undefined;
  }

  /** Every call of it is refused from now on; it goes when it has been quiet for a while. Not at once: node's GOAWAY ignores what crosses
   * it on the wire (it can't announce itself first, as RFC 9113 §6.8 advises), and such a call would look ambiguous to its caller. */
  unwelcome(session: Http2Session): void {
    const visit = this.#visits.get(session);
    if (visit !== undefined) visit.unwelcomeMs ??= this.#clock.nowMs();
  }

  /** A call came; its request is awaited. */
  began(stream: ServerHttp2Stream): void {
    this.#errands.set(stream, { phase: 'request', sinceMs: this.#clock.nowMs() });
    const visit = stream.session === undefined ? undefined : this.#visits.get(stream.session);
    if (visit !== undefined) {
      visit.streams += 1;
      visit.calls += 1;
    }
    stream.once('close', () => {
      this.#errands.delete(stream);
      if (visit === undefined) return;
      visit.streams -= 1;
      visit.idleSinceMs = this.#clock.nowMs();
    });
  }

  /** The request is whole: it is the gateway's turn, for as long as the caller's deadline allows. */
  working(stream: ServerHttp2Stream): void {
    const errand = this.#errands.get(stream);
    if (errand !== undefined) errand.phase = 'work';
  }

  /** The answer was given; it is awaited that the caller takes it. */
  answered(stream: ServerHttp2Stream): void {
    const errand = this.#errands.get(stream);
    if (errand === undefined) return;
    errand.phase = 'answer';
    errand.sinceMs = this.#clock.nowMs();
  }

  /** Ends the watch. */
  close(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const nowMs = this.#clock.nowMs();
    const { greetingMs, requestMs, answerMs, idleMs } = this.#limits;
    for (const [session, visit] of this.#visits) {
      const quietMs = visit.streams > 0 ? 0 : nowMs - visit.idleSinceMs;
      if (!visit.greeted && nowMs - visit.sinceMs > greetingMs) session.destroy();
      else if (visit.pingedMs !== undefined && nowMs - visit.pingedMs > greetingMs) session.destroy();
      else if (visit.unwelcomeMs !== undefined && Math.min(quietMs, nowMs - visit.unwelcomeMs) > greetingMs) session.close();
      else if (visit.pingedMs === undefined && quietMs > idleMs) ping(session, visit, nowMs);
    }
    for (const [stream, errand] of this.#errands) {
      if (errand.phase === 'work') continue;
      if (nowMs - errand.sinceMs <= (errand.phase === 'request' ? requestMs : answerMs)) continue;
      const late = errand.phase;
      // Told so; what it is told it may take for as long as an answer.
      if (late === 'request') Object.assign(errand, { phase: 'answer', sinceMs: nowMs });
      else this.#errands.delete(stream);
      this.#onTooLate(stream, late);
    }
  }
}

/** A caller that is gone without a word does not answer; one that only waits does. */
function ping(session: Http2Session, visit: Visit, nowMs: number): void {
  visit.pingedMs = nowMs;
  try {
    session.ping((error) => {
      if (error !== null) return;
      visit.pingedMs = undefined;
      visit.idleSinceMs = nowMs;
    });
  } catch {
    session.destroy();
  }
}
