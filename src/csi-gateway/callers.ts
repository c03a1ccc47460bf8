import type { Http2Session, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { TlsSource } from '../runtime/tls-files.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { identifyCaller, isStillTrusted, outdated } from './caller.ts';
import type { Caller } from './caller.ts';
import type { CertificateName } from './client-names.ts';
import type { GatewayMetrics } from './metrics.ts';
import type { ConnectionReaper } from './connection-reaper.ts';

/** What the door asks of callers that come by TCP. */
export interface DoorTls {
  readonly source: TlsSource;
  /** Who may call; anybody else with a good certificate may ask for the gateway's health and
   * nothing more. */
  readonly allowedNames: readonly CertificateName[];
}

export interface CallersOptions {
  readonly patience: ConnectionReaper;
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
export class Callers {
  readonly #options: CallersOptions;
  readonly #connections = new Map<Http2Session, Connection>();
  #warnedMs = -Infinity;

  constructor(options: CallersOptions) {
    this.#options = options;
  }

  /** Lets a connection in, for calls if it may call.
   * @param socket  that it came by
   * @param tls     of the door by which it came; undefined where that asks for no certificate */
  welcome(session: ServerHttp2Session, socket: Socket, tls: DoorTls | undefined): void {
    const { metrics, patience } = this.#options;
    // The session alone would wait for what is being written, for ever if the other side does not
    // read.
    const cut = (): void => {
      session.destroy();
      socket.destroy();
    };
    if (this.#connections.size >= MAX_CONNECTIONS) {
      metrics.turnedAway('too-many');
      if (!patience.evict()) return cut();
    }
    const caller = identifyCaller(session, tls?.allowedNames);
    if (caller.refusal !== undefined) {
      metrics.turnedAway('name');
      this.#warn({ caller: caller.name, reason: caller.refusal.details }, 'a caller may not call');
    }
    this.#connections.set(session, { caller, cut });
    patience.arrived(session, cut);
    session.setLocalWindowSize(WINDOW_BYTES);
    metrics.connections(1);
    session.once('close', () => {
      this.#connections.delete(session);
      metrics.connections(-1);
    });
  }

  /** Who is calling, by what was shown at the handshake. */
  of({ session }: ServerHttp2Stream): Caller | undefined {
    const caller = session === undefined ? undefined : this.#connections.get(session)?.caller;
    if (
      session === undefined ||
      caller === undefined ||
      this.#options.clock.nowMs() < caller.notAfterMs
    )
      return caller;
    this.#options.patience.retire(session);
    return outdated(caller, 'has ended');
  }

  /** Whom the new authorities would not let in may call no more; the others don't notice. */
  reconsider(authorities: string): void {
    const nowMs = this.#options.clock.nowMs();
    for (const [session, connection] of this.#connections) {
      const { caller } = connection;
      if (
        caller.certificate === undefined ||
        isStillTrusted(caller.certificate, authorities, nowMs)
      )
        continue;
      connection.caller = outdated(caller, 'is signed by no authority that is trusted now');
      this.#options.patience.retire(session);
    }
  }

  /** A TLS handshake came to nothing. */
  handshakeFailed(error: Error, socket: TLSSocket): void {
    this.#options.metrics.turnedAway('handshake');
    this.#warn(
      { from: socket.remoteAddress, reason: error.message },
      'a caller’s TLS handshake failed',
    );
  }

  /** A connection more than the listener takes. */
  dropped(): void {
    this.#options.metrics.turnedAway('too-many');
  }

  /** A connection was ended that kept too many calls waiting. */
  tooMany(session: Http2Session): void {
    this.#options.metrics.turnedAway('too-many');
    const caller = this.#connections.get(session)?.caller.name;
    this.#warn({ caller }, 'a caller kept too many calls waiting: its connection was ended');
  }

  /** Lets all go as soon as their calls have ended. */
  dismiss(): void {
    for (const session of this.#connections.keys()) session.close();
  }

  /** Cuts off those that are still there. */
  cut(): void {
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
