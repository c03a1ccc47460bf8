import type { ClientHttp2Session } from 'node:http2';
import type { ConnectionOptions } from 'node:tls';
import { openSession } from '../csi/open-session.ts';
import { ResetLimiter } from '../csi/reset-limiter.ts';
import { CANCELED_DETAILS, Code, createNotSentError, DEADLINE_DETAILS } from '../csi/status.ts';
import { callUnary, type Peer, type UnaryAnswer, type UnaryRequest } from '../csi/unary-call.ts';
import { type Address, bracketIPv6, formatAddress } from '../runtime/address.ts';
import { systemClock, timerMs } from '../runtime/clock.ts';
import { type ClientTls, tlsOptions } from './credentials.ts';

export interface ChannelTarget {
  readonly address: Address;
  /** Largest response accepted. */
  readonly maxReceiveBytes: number;
  readonly tls?: ClientTls | undefined;
}

/** Time for the TCP and TLS handshakes and the peer's SETTINGS frame. */
const CONNECT_TIMEOUT_MS = 20_000;
const RETRY_MIN_MS = 100;
const RETRY_MAX_MS = 2_000;
const RETRY_FACTOR = 1.6;
/** A unix socket reports a lost peer; TCP needs pings to notice. */
const PING_INTERVAL_MS = 20_000;
const PING_TIMEOUT_MS = 10_000;

interface Wait {
  /** Method path, for errors. */
  readonly path: string;
  readonly ms: number;
  readonly signal: AbortSignal | undefined;
}

/** Calls a gateway or a driver with the certificates that were current when the channel was made.
 * It passes through these states until it is closed:
 * - idle: there is no session. A call starts connecting.
 * - connecting: calls wait. Then `connected` or `failing`.
 * - failing: the last attempt failed. Calls fail at once, while it tries again every 100 ms to 2 s.
 *   Then `connected`.
 * - connected: calls are sent. A session that closes or gets a GOAWAY is given up: `idle` again.
 *   Calls under way on it may still end. */
export class Channel {
  /** As formatAddress writes it. */
  readonly address: string;
  /** Number of calls under way, counted by the owner. */
  calls = 0;
  readonly #target: ChannelTarget;
  readonly #tls: ConnectionOptions | undefined;
  readonly #peer: Peer;
  readonly #stop = new AbortController();
  /** The calls that wait until an attempt to connect has ended. */
  readonly #waiting = new Set<() => void>();
  #session: ClientHttp2Session | undefined;
  #isConnecting = false;
  /** Why the last attempt failed; undefined if none has since the last session. */
  #failure: string | undefined;

  constructor(target: ChannelTarget) {
    const { address, maxReceiveBytes: maxBytes, tls } = target;
    this.#target = target;
    this.#tls = tlsOptions(address, tls);
    this.address = formatAddress(address);
    const isUnix = address.kind === 'unix';
    this.#peer = {
      name: 'the gateway',
      headers: {
        ':scheme': this.#tls === undefined ? 'http' : 'https',
        ':authority': isUnix ? 'localhost' : `${bracketIPv6(address.host)}:${address.port}`,
        'content-type': 'application/grpc',
        'user-agent': 'grpc-node-sutler',
      },
      maxBytes,
      ifLarger: '',
      resets: new ResetLimiter(),
    };
  }

  get isClosed(): boolean {
    return this.#stop.signal.aborted;
  }

  get isConnected(): boolean {
    return this.#session?.closed === false && !this.#session.destroyed;
  }

  /** Waits until the channel is connected.
   * @throws CsiError with notForwarded: the connection failed, the time is up, or the signal
   *   aborted */
  async waitUntilConnected({ path, ms, signal }: Wait): Promise<void> {
    if (!this.isClosed && this.#failure === undefined && signal?.aborted !== true) {
      void this.#connect();
      await this.#waitForAttempt(ms, signal);
    }
    if (this.isConnected) return;
    const fail = (code: number, details: string): never => {
      throw createNotSentError({ method: path, code, details });
    };
    if (signal?.aborted === true) return fail(Code.Canceled, CANCELED_DETAILS);
    if (this.isClosed) return fail(Code.Canceled, 'the client was closed');
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
    return callUnary(session, request, this.#peer);
  }

  /** Ends the connection, and the calls under way as ambiguous. */
  close(): void {
    this.#stop.abort('closed');
    this.#wake();
  }

  async #connect(): Promise<void> {
    if (this.#isConnecting) return;
    this.#isConnecting = true;
    const { address, maxReceiveBytes: maxMessageBytes } = this.#target;
    const { signal } = this.#stop;
    const options = { timeoutMs: CONNECT_TIMEOUT_MS, maxMessageBytes, signal, tls: this.#tls };
    let retryMs = RETRY_MIN_MS;
    while (!signal.aborted && !this.isConnected) {
      const opened = await openSession(address, options);
      if (typeof opened !== 'string') {
        this.#useSession(opened);
        break;
      }
      this.#failure = opened;
      this.#wake();
      await systemClock.sleep(retryMs, signal);
      retryMs = Math.min(retryMs * RETRY_FACTOR, RETRY_MAX_MS);
    }
    this.#isConnecting = false;
    this.#wake();
  }

  #useSession(session: ClientHttp2Session): void {
    this.#failure = undefined;
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
    if (this.#target.address.kind === 'tcp') this.#pingDuringCalls(session);
  }

  /** Ends a session whose peer does not answer pings any more. */
  #pingDuringCalls(session: ClientHttp2Session): void {
    const ping = (): void => {
      if (this.calls === 0 || session.destroyed) return;
      const timer = setTimeout(() => {
        session.destroy(new Error(`no answer to a ping within ${PING_TIMEOUT_MS} ms`));
      }, PING_TIMEOUT_MS);
      session.ping(() => clearTimeout(timer));
    };
    const timer = setInterval(ping, PING_INTERVAL_MS).unref();
    session.once('close', () => clearInterval(timer));
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
