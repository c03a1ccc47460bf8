import type { Http2Session, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { Clock } from '../runtime/clock.ts';

/** How long callers may keep the gateway waiting. */
export interface ReaperLimits {
  /** From opening a connection to its SETTINGS frame, and from a ping to its answer. A retired
   * connection is closed after it has had no call for this time. */
  readonly replyMs: number;
  /** From a call's headers to the end of its request. */
  readonly requestMs: number;
  /** From the gateway's answer to the end of its transmission. */
  readonly answerMs: number;
  /** A connection without calls for this time is pinged. */
  readonly idleMs: number;
  /** Calls that may wait for their callers at once. One more ends the connection with the most
   * waiting calls. */
  readonly maxWaitingCalls: number;
}

/** Long enough for callers on a bad network, but callers must not occupy memory for long: a waiting
 * call takes up to 25 kB. Calls of a well-behaved caller wait for milliseconds. */
export const defaultReaperLimits: ReaperLimits = {
  replyMs: 10_000,
  requestMs: 30_000,
  answerMs: 30_000,
  idleMs: 20_000,
  maxWaitingCalls: 2_000,
};

/** What a connection lets the reaper do. */
export interface ConnectionActions {
  /** Ends it at once, with all its calls. */
  readonly destroy: () => void;
  /** Called when the driver has answered its first call. */
  readonly onProven: () => void;
}

/** A connection is new for this long after it was opened, or after its last call. */
const NEW_MS = 2_000;

class Connection {
  readonly destroy: () => void;
  readonly onProven: () => void;
  readonly openedMs: number;
  idleSinceMs: number;
  hasSettings = false;
  /** Streams that are open. */
  streams = 0;
  /** Those of the streams that wait for the caller. */
  waiting = 0;
  /** Whether the driver has answered one of its calls. */
  isProven = false;
  /** When a ping was sent that is not answered yet; Infinity if there is none. */
  pingedMs = Infinity;
  /** Since when its calls are refused; Infinity if they are not. */
  retiredMs = Infinity;
  isGone = false;

  constructor({ destroy, onProven }: ConnectionActions, nowMs: number) {
    this.destroy = destroy;
    this.onProven = onProven;
    this.openedMs = this.idleSinceMs = nowMs;
  }
}

/** What the gateway waits for: the rest of a request, or that the caller reads its answer. */
export type AwaitedStep = 'request' | 'answer';

/** A call is in one of these phases:
 * - request: its headers have arrived; the caller has to send the rest. Then `work`, or `answer` if
 *   the call is refused, also for being late.
 * - work: the gateway and the driver work on it, as long as the caller's deadline allows. Then
 *   `answer`.
 * - answer: an answer was handed to the stream; the caller has to read it. If it is late, `reset`.
 * - reset: an RST_STREAM frame was handed to the stream; the caller has to take it. If it is late,
 *   its connection is destroyed. */
type Phase = AwaitedStep | 'work' | 'reset';

interface CallState {
  readonly connection: Connection;
  phase: Phase;
  sinceMs: number;
}

export interface ConnectionReaperOptions {
  readonly limits: ReaperLimits;
  readonly clock: Clock;
  /** Ends a late call; must move it to another phase. */
  readonly onLateCall: (stream: ServerHttp2Stream, step: AwaitedStep) => void;
  /** Called before a connection is destroyed because of too many calls that are open or wait. */
  readonly onTooManyCalls: (session: Http2Session) => void;
}

/** Ends calls and connections of callers that are too slow, idle or no longer allowed. One timer
 * serves all of them: a timer for each call would cost more than the rest of its bookkeeping. */
export class ConnectionReaper {
  readonly #options: ConnectionReaperOptions;
  readonly #connections = new Map<Http2Session, Connection>();
  readonly #calls = new Map<ServerHttp2Stream, CallState>();
  readonly #timer: NodeJS.Timeout;
  #waiting = 0;

  constructor(options: ConnectionReaperOptions) {
    this.#options = options;
    const { replyMs, requestMs, answerMs, idleMs } = options.limits;
    const shortestMs = Math.min(replyMs, requestMs, answerMs, idleMs);
    this.#timer = setInterval(() => this.#reap(), Math.max(10, Math.min(1_000, shortestMs / 4)));
    this.#timer.unref();
  }

  /** Starts watching a connection. */
  addConnection(session: ServerHttp2Session, actions: ConnectionActions): void {
    const connection = new Connection(actions, this.#options.clock.nowMs());
    this.#connections.set(session, connection);
    session.once('remoteSettings', () => (connection.hasSettings = true));
    session.once('close', () => this.#removeConnection(session));
  }

  /** Destroys one of these connections, to make room for another. Those that never had an answer of
   * the driver are first: one that has had no call for a while, else the oldest (a new one has had
   * no time for its call yet). Then those without calls, the one that has been idle longest. Never
   * one whose call is at the driver: it would become ambiguous.
   * @returns whether there was one */
  evict(sessions: Iterable<Http2Session>): boolean {
    const nowMs = this.#options.clock.nowMs();
    const [first] = [...sessions]
      .map((session) => this.#connections.get(session))
      .filter((connection) => connection !== undefined)
      .filter(({ streams, waiting, isProven }) => streams === (isProven ? 0 : waiting))
      .sort((a, b) => compareWorth(a, b, nowMs));
    first?.destroy();
    return first !== undefined;
  }

  /** Remembers that the driver has answered a call of this connection. */
  prove({ session }: ServerHttp2Stream): void {
    const connection = session === undefined ? undefined : this.#connections.get(session);
    if (connection === undefined || connection.isProven) return;
    connection.isProven = true;
    connection.onProven();
  }

  /** Closes a connection, whose calls are refused from now on, once it has been quiet for a while.
   * Not at once: Node's GOAWAY ignores calls that cross it on the wire (Node can't announce it as
   * RFC 9113 section 6.8 advises), and such calls would look ambiguous to their caller. */
  retire(session: Http2Session): void {
    const connection = this.#connections.get(session);
    if (connection?.retiredMs === Infinity) connection.retiredMs = this.#options.clock.nowMs();
  }

  /** Starts watching a call, in phase `request`.
   * @param maxStreams  calls that its connection may have open; one more ends the connection */
  addCall(stream: ServerHttp2Stream, maxStreams: number): void {
    const { session } = stream;
    const connection = session === undefined ? undefined : this.#connections.get(session);
    if (session === undefined || connection === undefined) return;
    connection.streams += 1;
    if (connection.streams > maxStreams) return this.#endConnection(session, connection);
    this.#calls.set(stream, { connection, phase: 'work', sinceMs: 0 });
    this.enterPhase(stream, 'request');
    stream.once('close', () => {
      this.enterPhase(stream, 'work');
      this.#calls.delete(stream);
      connection.streams -= 1;
      connection.idleSinceMs = this.#options.clock.nowMs();
    });
  }

  /** Moves a call to another phase. */
  enterPhase(stream: ServerHttp2Stream, phase: Phase): void {
    const call = this.#calls.get(stream);
    if (call === undefined || call.connection.isGone) return;
    const change = Number(phase !== 'work') - Number(call.phase !== 'work');
    call.phase = phase;
    call.sinceMs = this.#options.clock.nowMs();
    call.connection.waiting += change;
    this.#waiting += change;
    if (change > 0 && this.#waiting > this.#options.limits.maxWaitingCalls)
      this.#endBusiestConnection();
  }

  /** Stops the timer. */
  close(): void {
    clearInterval(this.#timer);
  }

  #endBusiestConnection(): void {
    const [session, connection] = [...this.#connections].reduce((a, b) =>
      b[1].waiting > a[1].waiting ? b : a,
    );
    this.#endConnection(session, connection);
  }

  #endConnection(session: Http2Session, { destroy }: Connection): void {
    this.#removeConnection(session);
    this.#options.onTooManyCalls(session);
    destroy();
  }

  /** Stops counting a connection and its calls, whose own 'close' events come a little later. */
  #removeConnection(session: Http2Session): void {
    const connection = this.#connections.get(session);
    if (connection === undefined) return;
    this.#connections.delete(session);
    this.#waiting -= connection.waiting;
    connection.isGone = true;
  }

  #reap(): void {
    const nowMs = this.#options.clock.nowMs();
    for (const [session, connection] of this.#connections)
      this.#checkConnection(session, connection, nowMs);
    for (const [stream, call] of this.#calls) this.#checkCall(stream, call, nowMs);
  }

  #checkConnection(session: Http2Session, connection: Connection, nowMs: number): void {
    const { replyMs, idleMs } = this.#options.limits;
    const { hasSettings, openedMs, pingedMs, retiredMs } = connection;
    const quietMs = connection.streams > 0 ? 0 : nowMs - connection.idleSinceMs;
    const isSilent = (!hasSettings && nowMs - openedMs > replyMs) || nowMs - pingedMs > replyMs;
    if (isSilent) connection.destroy();
    else if (Math.min(quietMs, nowMs - retiredMs) > replyMs) session.close();
    else if (pingedMs === Infinity && quietMs > idleMs) ping(session, connection, nowMs);
  }

  #checkCall(stream: ServerHttp2Stream, call: CallState, nowMs: number): void {
    const { phase, sinceMs, connection } = call;
    if (phase === 'work') return;
    const { requestMs, answerMs } = this.#options.limits;
    if (nowMs - sinceMs <= (phase === 'request' ? requestMs : answerMs)) return;
    // The caller does not even read the reset, so it reads nothing at all.
    if (phase === 'reset') connection.destroy();
    else this.#options.onLateCall(stream, phase);
  }
}

/** Orders connections by what is lost if they end, the least first. */
function compareWorth(a: Connection, b: Connection, nowMs: number): number {
  const isBusy = ({ streams, isProven, idleSinceMs }: Connection): boolean =>
    streams > 0 || (!isProven && nowMs - idleSinceMs < NEW_MS);
  return (
    Number(a.isProven) - Number(b.isProven) ||
    Number(isBusy(a)) - Number(isBusy(b)) ||
    (a.isProven ? a.idleSinceMs - b.idleSinceMs : a.openedMs - b.openedMs)
  );
}

/** Pings an idle connection. If the caller is gone, no answer comes. */
function ping(session: Http2Session, connection: Connection, nowMs: number): void {
  connection.pingedMs = nowMs;
  try {
    session.ping((error) => {
      if (error !== null) return;
      connection.pingedMs = Infinity;
      connection.idleSinceMs = nowMs;
    });
  } catch {
    connection.destroy();
  }
}
