import type { Http2Session, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { TlsSource } from '../runtime/tls-files.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { identifyCaller, isStillTrusted, revokeCaller, type Caller } from './identify-caller.ts';
import type { CertificateName } from './certificate-names.ts';
import type { GatewayMetrics } from './metrics.ts';
import type { ConnectionReaper } from './connection-reaper.ts';

/** What the door asks of callers that come by TCP. */
export interface ListenerTls {
  readonly source: TlsSource;
  /** Who may call; anybody else with a good certificate may ask for the gateway's health and
   * nothing more. */
  readonly allowedNames: readonly CertificateName[];
}

export interface CallerConnectionsOptions {
  readonly reaper: ConnectionReaper;
  readonly metrics: GatewayMetrics;
  readonly clock: Clock;
  readonly log: Logger;
}

const WINDOW_BYTES = 4 * 1024 * 1024;
/** Connections at once: many times what ingest and jobs open. One more takes the place of the one
 * that is missed least. */
const MAX_CONNECTIONS = 256;
/** At most one warning in that time about callers that were turned away. */
const WARN_EVERY_MS = 10_000;

interface Connection {
  caller: Caller;
  readonly cut: () => void;
}

/** The connections that are open, and who is behind each. */
export class CallerConnections {
  readonly #options: CallerConnectionsOptions;
  readonly #connections = new Map<Http2Session, Connection>();
  #warnedMs = -Infinity;

  constructor(options: CallerConnectionsOptions) {
    this.#options = options;
  }

  /** Lets a connection in, for calls if it may call.
   * @param socket  that it came by
   * @param tls     of the door by which it came; undefined where that asks for no certificate */
  add(session: ServerHttp2Session, socket: Socket, tls: ListenerTls | undefined): void {
    const { metrics, reaper } = this.#options;
    // The session alone would wait for what is being written, for ever if the other side does not
    // read.
    const cut = (): void => {
      session.destroy();
      socket.destroy();
    };
    if (this.#connections.size >= MAX_CONNECTIONS) {
      metrics.countTurnedAway('too-many');
      if (!reaper.evictIdle()) return cut();
    }
    const caller = identifyCaller(session, tls?.allowedNames);
    if (caller.refusal !== undefined) {
      metrics.countTurnedAway('name');
      this.#warn({ caller: caller.name, reason: caller.refusal.details }, 'a caller may not call');
    }
    this.#connections.set(session, { caller, cut });
    reaper.addConnection(session, cut);
    session.setLocalWindowSize(WINDOW_BYTES);
    metrics.changeConnections(1);
    session.once('close', () => {
      this.#connections.delete(session);
      metrics.changeConnections(-1);
    });
  }

  /** Who is calling, by what was shown at the handshake. */
  findCaller({ session }: ServerHttp2Stream): Caller | undefined {
    const caller = session === undefined ? undefined : this.#connections.get(session)?.caller;
    if (
      session === undefined ||
      caller === undefined ||
      this.#options.clock.nowMs() < caller.notAfterMs
    )
      return caller;
    this.#options.reaper.retire(session);
    return revokeCaller(caller, 'has ended');
  }

  /** Whom the new authorities would not let in may call no more; the others don't notice. */
  revokeUntrusted(authorities: string): void {
    const nowMs = this.#options.clock.nowMs();
    for (const [session, connection] of this.#connections) {
      const { caller } = connection;
      if (
        caller.certificate === undefined ||
        isStillTrusted(caller.certificate, authorities, nowMs)
      )
        continue;
      connection.caller = revokeCaller(caller, 'is signed by no authority that is trusted now');
      this.#options.reaper.retire(session);
    }
  }

  /** A TLS handshake came to nothing. */
  rejectHandshake(error: Error, socket: TLSSocket): void {
    this.#options.metrics.countTurnedAway('handshake');
    this.#warn(
      { from: socket.remoteAddress, reason: error.message },
      'a caller’s TLS handshake failed',
    );
  }

  /** A connection more than the listener takes. */
  countDropped(): void {
    this.#options.metrics.countTurnedAway('too-many');
  }

  /** A connection was ended that kept too many calls waiting. */
  reportTooManyWaiting(session: Http2Session): void {
    this.#options.metrics.countTurnedAway('too-many');
    const caller = this.#connections.get(session)?.caller.name;
    this.#warn({ caller }, 'a caller kept too many calls waiting: its connection was ended');
  }

  /** Lets all go as soon as their calls have ended. */
  closeGracefully(): void {
    for (const session of this.#connections.keys()) session.close();
  }

  /** Cuts off those that are still there. */
  destroyAll(): void {
    for (const { cut } of this.#connections.values()) cut();
  }

  /** Warns of those who were turned away, but lets none of them fill the log. */
  #warn(fields: object, message: string): void {
    const { clock, log } = this.#options;
    const nowMs = clock.nowMs();
    if (nowMs - this.#warnedMs < WARN_EVERY_MS) return log.debug(fields, message);
    this.#warnedMs = nowMs;
    log.warn(fields, message);
  }
}
