import type { ClientHttp2Session } from 'node:http2';
import { getSingle } from '../csi/grpc-wire.ts';
import { openSession } from '../csi/open-session.ts';
import { Code, TIME_TRAILER } from '../csi/status.ts';
import { callUnary, type Peer, type UnaryAnswer, type UnaryRequest } from '../csi/unary-call.ts';
import { type Address, bracketIPv6, formatAddress } from '../runtime/address.ts';
import { type Clock, unlessAborted } from '../runtime/clock.ts';
import { type ClientTls, tlsOptions } from './credentials.ts';

export interface ChannelOptions {
  readonly address: Address;
  /** Mutual TLS for TCP addresses; plaintext if absent. */
  readonly tls?: ClientTls | undefined;
  readonly clock: Clock;
  /** Metadata of every request. */
  readonly metadata?: Readonly<Record<string, string>>;
}

/** gRPC's default of 4 MiB is too small for ListVolumes. */
const MAX_RECEIVE_BYTES = 64 * 1024 * 1024;
/** Time for the TCP and TLS handshakes and the peer's SETTINGS frame. */
const CONNECT_TIMEOUT_MS = 20_000;
const RETRY_MIN_MS = 100;
const RETRY_MAX_MS = 2_000;
const RETRY_FACTOR = 1.6;
/** A unix socket reports a lost peer; TCP needs pings to notice. */
const PING_INTERVAL_MS = 20_000;
const PING_TIMEOUT_MS = 10_000;
/** A gateway answers this without its driver. */
const HEALTH = '/grpc.health.v1.Health/Check';
const ASK_TIME_MS = 1_000;

/** A connection to a gateway or a driver. States until it is closed:
 * - idle: there is no session. A call starts connecting.
 * - connecting: calls wait. Then `connected` or `failing`.
 * - failing: the last attempt failed. Calls fail at once, while it tries again every 100 ms to 2 s.
 *   Then `connected`.
 * - connected: it sends calls. If the session closes or gets a GOAWAY, or its certificates change,
 *   it is `idle` again. Calls under way on the session may still end. */
export class Channel {
  /** As formatAddress writes it. */
  readonly #address: string;
  readonly #options: ChannelOptions;
  readonly #peer: Peer;
  readonly #stop = new AbortController();
  readonly #stopTlsUpdates: (() => void) | undefined;
  #session: ClientHttp2Session | undefined;
  /** Resolves when the first attempt to connect ends; undefined while idle or connected. */
  #firstAttempt: Promise<void> | undefined;
  #isRetired = false;
  /** Why there is no session. */
  #trouble = 'it is not connected yet';
  #aheadMs = 0;

  constructor(options: ChannelOptions) {
    const { address, tls, metadata } = options;
    this.#options = options;
    this.#address = formatAddress(address);
    const isUnix = address.kind === 'unix';
    this.#peer = {
      name: 'the gateway',
      headers: {
        ':scheme': isUnix || tls === undefined ? 'http' : 'https',
        ':authority': isUnix ? 'localhost' : `${bracketIPv6(address.host)}:${address.port}`,
        'user-agent': 'grpc-node-sutler',
        ...metadata,
      },
      maxBytes: MAX_RECEIVE_BYTES,
      ifLarger: '',
    };
    this.#stopTlsUpdates = tls?.source.onChange(() => this.#leaveSession());
  }

  get isConnected(): boolean {
    return this.#session?.closed === false && !this.#session.destroyed;
  }

  /** How far the gateway's clock is ahead of this process's, in ms, by the time in the last answer.
   * Never too high, and too low by the answer's travel time. 0 if the peer sends no time. */
  get aheadMs(): number {
    return this.#aheadMs;
  }

  /** Waits until the channel is connected, an attempt has failed, or the signal aborts.
   * @returns why it is not connected */
  async connect(signal: AbortSignal): Promise<string | undefined> {
    if (this.isConnected) return undefined;
    this.#firstAttempt ??= this.#attempt(RETRY_MIN_MS);
    await unlessAborted(this.#firstAttempt, signal);
    return this.isConnected ? undefined : `no connection to ${this.#address}: ${this.#trouble}`;
  }

  /** Sends one call, if the channel is connected. Never rejects. */
  async send(request: UnaryRequest): Promise<UnaryAnswer> {
    const session = this.#session;
    if (session !== undefined) return this.#sendOn(session, request);
    const details = `no connection to ${this.#address}: ${this.#trouble}`;
    return { kind: 'not-sent', code: Code.Unavailable, details };
  }

  /** Ends the connection after the calls under way. */
  retire(): void {
    this.#isRetired = true;
    this.#stopTlsUpdates?.();
    this.#leaveSession();
    this.#trouble = 'the client was closed';
  }

  /** Ends the connection. Calls under way end as ambiguous. */
  close(): void {
    this.retire();
    this.#stop.abort('closed');
  }

  /** Makes new calls open a new session with the current certificates. */
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

  /** Tries to connect. After a failure, starts another attempt later. */
  async #attempt(retryMs: number): Promise<void> {
    if (this.#isRetired) return;
    const { address, tls, clock } = this.#options;
    const { signal } = this.#stop;
    const material = tls?.source.current;
    const options = { timeoutMs: CONNECT_TIMEOUT_MS, maxMessageBytes: MAX_RECEIVE_BYTES, signal };
    const opened = await openSession(address, { ...options, tls: tlsOptions(address, tls) });
    if (typeof opened === 'string') {
      if (!this.#isRetired) this.#trouble = opened;
      const nextMs = Math.min(retryMs * RETRY_FACTOR, RETRY_MAX_MS);
      void clock.sleep(retryMs, signal).then(() => this.#attempt(nextMs));
      return;
    }
    await this.#askTime(opened);
    if (tls?.source.current === material) return this.#useSession(opened);
    opened.close();
    return this.#attempt(retryMs);
  }

  /** Reads the gateway's clock before the first call with a limit. A driver, whose socket this may
   * be, does not answer, and need not. */
  async #askTime(session: ClientHttp2Session): Promise<void> {
    const message = new Uint8Array(0);
    this.#aheadMs = 0;
    await this.#sendOn(session, { path: HEALTH, headers: {}, message, timeoutMs: ASK_TIME_MS });
  }

  #useSession(session: ClientHttp2Session): void {
    if (this.#isRetired) return session.close();
    this.#session = session;
    this.#firstAttempt = undefined;
    this.#trouble = 'the connection was closed';
    const lose = (): void => {
      if (this.#session === session) this.#session = undefined;
    };
    session.once('close', lose);
    // After a GOAWAY, calls under way may still succeed; new calls need a new session.
    session.once('goaway', lose);
    if (session.closed) lose();
    // The connection does not keep the process running. A call does, by its timer.
    session.unref();
    if (this.#options.address.kind === 'tcp') endIfSilent(session);
  }
}

/** Ends a session whose peer no longer answers pings. */
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
