import type { ClientHttp2Session, OutgoingHttpHeaders } from 'node:http2';
import { formatTimeout, frameMessage, getSingle } from '../csi/grpc-wire.ts';
import { openSession } from '../csi/open-session.ts';
import {
  CANCELED_DETAILS,
  Code,
  createNotSentError,
  DEADLINE_DETAILS,
  TIME_TRAILER,
} from '../csi/status.ts';
import { callUnary, type Peer, type UnaryAnswer, type UnaryRequest } from '../csi/unary-call.ts';
import { type Address, bracketIPv6, formatAddress } from '../runtime/address.ts';
import { type Clock, timerMs } from '../runtime/clock.ts';
import { type ClientTls, tlsOptions } from './credentials.ts';

export interface ChannelOptions {
  readonly address: Address;
  /** Largest response accepted. */
  readonly maxReceiveBytes: number;
  readonly tls?: ClientTls | undefined;
  readonly clock: Clock;
}

/** Time for the TCP and TLS handshakes and the peer's SETTINGS frame. */
const CONNECT_TIMEOUT_MS = 20_000;
const RETRY_MIN_MS = 100;
const RETRY_MAX_MS = 2_000;
const RETRY_FACTOR = 1.6;
/** A unix socket reports a lost peer; TCP needs pings to notice. */
const PING_INTERVAL_MS = 20_000;
const PING_TIMEOUT_MS = 10_000;
/** Which a gateway answers without its driver. */
const HEALTH = '/grpc.health.v1.Health/Check';
const ASK_TIME_MS = 1_000;

interface Wait {
  /** Method path, for errors. */
  readonly path: string;
  readonly ms: number;
  readonly signal: AbortSignal | undefined;
}

/** A connection to a gateway or a driver. It passes through these states until it is closed:
 * - idle: there is no session. A call starts connecting.
 * - connecting: calls wait. Then `connected` or `failing`.
 * - failing: the last attempt failed. Calls fail at once, while it tries again every 100 ms to 2 s.
 *   Then `connected`.
 * - connected: calls are sent. A session that closes or gets a GOAWAY, or whose certificates have
 *   changed, is given up: `idle` again. Calls under way on it may still end. */
export class Channel {
  /** As formatAddress writes it. */
  readonly address: string;
  readonly #options: ChannelOptions;
  readonly #peer: Peer;
  readonly #stop = new AbortController();
  readonly #stopTlsUpdates: (() => void) | undefined;
  /** The calls that wait until an attempt to connect has ended. */
  readonly #waiting = new Set<() => void>();
  #session: ClientHttp2Session | undefined;
  #isConnecting = false;
  #isRetired = false;
  /** Why the last attempt failed; undefined if none has since the last session. */
  #failure: string | undefined;
  #aheadMs = 0;

  constructor(options: ChannelOptions) {
    const { address, maxReceiveBytes: maxBytes, tls } = options;
    this.#options = options;
    this.address = formatAddress(address);
    const isUnix = address.kind === 'unix';
    this.#peer = {
      name: 'the gateway',
      headers: {
        ':scheme': isUnix || tls === undefined ? 'http' : 'https',
        ':authority': isUnix ? 'localhost' : `${bracketIPv6(address.host)}:${address.port}`,
        'content-type': 'application/grpc',
        'user-agent': 'grpc-node-sutler',
      },
      maxBytes,
      ifLarger: '',
    };
    this.#stopTlsUpdates = tls?.source.onChange(() => this.#leaveSession());
  }

  get isClosed(): boolean {
    return this.#stop.signal.aborted;
  }

  get isConnected(): boolean {
    return this.#session?.closed === false && !this.#session.destroyed;
  }

  /** How far the gateway's clock is ahead of this process's, in ms, by the time that each of its
   * answers has. The gateway takes it as it answers, so this is never too much, and too little by
   * the way back. 0 for a peer that sends none. */
  get aheadMs(): number {
    return this.#aheadMs;
  }

  /** Waits until the channel is connected.
   * @throws CsiError with notForwarded: the connection failed, the time is up, or the signal
   *   aborted */
  async waitUntilConnected({ path, ms, signal }: Wait): Promise<void> {
    if (!this.#isRetired && this.#failure === undefined && signal?.aborted !== true) {
      void this.#connect();
      await this.#waitForAttempt(ms, signal);
    }
    if (this.isConnected) return;
    const fail = (code: number, details: string): never => {
      throw createNotSentError({ method: path, code, details });
    };
    if (signal?.aborted === true) return fail(Code.Canceled, CANCELED_DETAILS);
    if (this.#isRetired) return fail(Code.Canceled, 'the client was closed');
    if (this.#failure === undefined && this.#isConnecting)
      return fail(Code.DeadlineExceeded, DEADLINE_DETAILS);
    const reason = this.#failure ?? 'the connection was closed';
    return fail(Code.Unavailable, `no connection to ${this.address}: ${reason}`);
  }

  /** Sends one call, if the channel is connected. Never rejects. */
  async send(request: UnaryRequest): Promise<UnaryAnswer> {
    const session = this.#session;
    if (session === undefined) {
      const details = `no connection to ${this.address}: the connection was closed`;
      return { kind: 'not-sent', code: Code.Unavailable, details };
    }
    return this.#sendOn(session, request);
  }

  /** Ends the connection when the calls under way have ended. */
  retire(): void {
    this.#isRetired = true;
    this.#stopTlsUpdates?.();
    this.#leaveSession();
    this.#wake();
  }

  /** Ends the connection, and the calls under way as ambiguous. */
  close(): void {
    this.retire();
    this.#stop.abort('closed');
  }

  /** New calls need a new session, and shake hands with the present certificates. */
  #leaveSession(): void {
    this.#session?.close();
    this.#session = undefined;
  }

  async #sendOn(session: ClientHttp2Session, request: UnaryRequest): Promise<UnaryAnswer> {
    const answer = await callUnary(session, request, this.#peer);
    const time = answer.kind === 'answered' ? getSingle(answer.trailers, TIME_TRAILER) : undefined;
    if (time !== undefined && /^\d{1,16}$/.test(time))
      this.#aheadMs = Number(time) - this.#options.clock.nowMs();
    return answer;
  }

  async #connect(): Promise<void> {
    if (this.#isConnecting) return;
    this.#isConnecting = true;
    const { address, maxReceiveBytes: maxMessageBytes, tls, clock } = this.#options;
    const { signal } = this.#stop;
    let retryMs = RETRY_MIN_MS;
    while (!this.#isRetired) {
      const material = tls?.source.current;
      const options = { timeoutMs: CONNECT_TIMEOUT_MS, maxMessageBytes, signal };
      const opened = await openSession(address, { ...options, tls: tlsOptions(address, tls) });
      if (typeof opened === 'string') {
        this.#failure = opened;
        this.#wake();
        await clock.sleep(retryMs, signal);
        retryMs = Math.min(retryMs * RETRY_FACTOR, RETRY_MAX_MS);
        continue;
      }
      await this.#askTime(opened);
      if (tls?.source.current !== material) {
        opened.close();
        continue;
      }
      this.#useSession(opened);
      break;
    }
    this.#isConnecting = false;
    this.#wake();
  }

  /** Learns the gateway's clock before the first call that has a limit. Whether it answers does not
   * matter: a driver, whose socket this may be, does not. */
  async #askTime(session: ClientHttp2Session): Promise<void> {
    const headers: OutgoingHttpHeaders = { 'grpc-timeout': formatTimeout(ASK_TIME_MS) };
    const body = frameMessage(new Uint8Array(0));
    this.#aheadMs = 0;
    await this.#sendOn(session, { path: HEALTH, headers, body, timeoutMs: ASK_TIME_MS });
  }

  #useSession(session: ClientHttp2Session): void {
    this.#failure = undefined;
    if (this.#isRetired) return session.close();
    this.#session = session;
    const lose = (): void => {
      if (this.#session === session) this.#session = undefined;
    };
    session.once('close', lose);
    // After a GOAWAY, calls under way may still succeed; new calls need a new session.
    session.once('goaway', lose);
    if (session.closed) lose();
    // A connection alone keeps no process from its end. A call does, by its timer.
    session.unref();
    if (this.#options.address.kind === 'tcp') endIfSilent(session);
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
  }

  /** Resolves when an attempt to connect has ended, after `ms`, or when the signal aborts. */
  #waitForAttempt(ms: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const finish = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', finish);
        this.#waiting.delete(finish);
        resolve();
      };
      const timer = setTimeout(finish, timerMs(ms));
      signal?.addEventListener('abort', finish, { once: true });
      this.#waiting.add(finish);
    });
  }
}

/** Ends a session whose peer does not answer pings any more. */
function endIfSilent(session: ClientHttp2Session): void {
  const ping = (): void => {
    if (session.destroyed) return;
    const timer = setTimeout(() => {
      session.destroy(new Error(`no answer to a ping within ${PING_TIMEOUT_MS} ms`));
    }, PING_TIMEOUT_MS);
    timer.unref();
    session.ping(() => clearTimeout(timer));
  };
  const timer = setInterval(ping, PING_INTERVAL_MS).unref();
  session.once('close', () => clearInterval(timer));
}
