import type { Http2Session, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { TlsSource } from '../runtime/tls-files.ts';
import type { CertificateName } from './certificate-names.ts';
import type { ConnectionReaper } from './connection-reaper.ts';
import { type Caller, identifyCaller, isStillTrusted, revokeCaller } from './identify-caller.ts';
import type { GatewayMetrics } from './metrics.ts';

/** TLS of the listeners on TCP. */
export interface ListenerTls {
  readonly source: TlsSource;
  /** Names of the callers that may call. Callers with another name and a valid certificate may only
   * use the health service. */
  readonly allowedNames: readonly CertificateName[];
}

export interface CallerConnectionsOptions {
  readonly reaper: ConnectionReaper;
  readonly metrics: GatewayMetrics;
  readonly clock: Clock;
  readonly log: Logger;
}

const WINDOW_BYTES = 4 * 1024 * 1024;
/** Many times what ingest and jobs need. Beyond that, a new connection replaces an idle one. */
const MAX_CONNECTIONS = 256;
/** At most one warning about rejected callers in this time. */
const WARN_INTERVAL_MS = 10_000;

interface Connection {
  caller: Caller;
  readonly destroy: () => void;
}

/** The open connections and the caller of each. */
export class CallerConnections {
  readonly #options: CallerConnectionsOptions;
  readonly #connections = new Map<Http2Session, Connection>();
  #warnedMs = -Infinity;

  constructor(options: CallerConnectionsOptions) {
    this.#options = options;
  }

  /** Registers a new connection, or destroys it if there are too many and none is idle.
   * @param socket  the connection's socket
   * @param tls     of its listener; undefined if the listener asks for no certificate */
  add(session: ServerHttp2Session, socket: Socket, tls: ListenerTls | undefined): void {
    const { metrics, reaper } = this.#options;
    // session.destroy() alone waits for pending writes, forever if the peer does not read.
    const destroy = (): void => {
      session.destroy();
      socket.destroy();
    };
    if (this.#connections.size >= MAX_CONNECTIONS) {
      metrics.countTurnedAway('too-many');
      if (!reaper.evictIdle()) return destroy();
    }
    const caller = identifyCaller(session, tls?.allowedNames);
    if (caller.refusal !== undefined) {
      metrics.countTurnedAway('name');
      const fields = { caller: caller.name, reason: caller.refusal.details };
      this.#warn(fields, 'the calls of a caller are refused');
    }
    this.#connections.set(session, { caller, destroy });
    reaper.addConnection(session, destroy);
    session.setLocalWindowSize(WINDOW_BYTES);
    metrics.changeConnections(1);
    session.once('close', () => {
      this.#connections.delete(session);
      metrics.changeConnections(-1);
    });
  }

  /** The caller of a stream. If its certificate has expired since the handshake, its calls are
   * refused and its connection is retired. */
  findCaller({ session }: ServerHttp2Stream): Caller | undefined {
    const caller = session === undefined ? undefined : this.#connections.get(session)?.caller;
    if (session === undefined || caller === undefined) return undefined;
    if (this.#options.clock.nowMs() < caller.notAfterMs) return caller;
    this.#options.reaper.retire(session);
    return revokeCaller(caller, 'has ended');
  }

  /** After a change of the authorities: refuses callers whose certificate no longer verifies, and
   * retires their connections. */
  revokeUntrusted(authorities: string): void {
    const nowMs = this.#options.clock.nowMs();
    for (const [session, connection] of this.#connections) {
      const { certificate } = connection.caller;
      if (certificate === undefined || isStillTrusted(certificate, authorities, nowMs)) continue;
      const reason = 'is signed by no authority that is trusted now';
      connection.caller = revokeCaller(connection.caller, reason);
      this.#options.reaper.retire(session);
    }
  }

  /** Counts and logs a failed TLS handshake. */
  rejectHandshake(error: Error, socket: TLSSocket): void {
    this.#options.metrics.countTurnedAway('handshake');
    this.#warn(
      { from: socket.remoteAddress, reason: error.message },
      'a caller’s TLS handshake failed',
    );
  }

  /** Counts and logs a connection that the reaper ends for its many waiting calls. */
  reportTooManyWaiting(session: Http2Session): void {
    this.#options.metrics.countTurnedAway('too-many');
    const caller = this.#connections.get(session)?.caller.name;
    this.#warn({ caller }, 'a caller kept too many calls waiting: its connection was ended');
  }

  /** Closes each connection as soon as its calls have ended. */
  closeGracefully(): void {
    for (const session of this.#connections.keys()) session.close();
  }

  /** Destroys all connections that are still open. */
  destroyAll(): void {
    for (const { destroy } of this.#connections.values()) destroy();
  }

  /** Warns about a rejected caller; within WARN_INTERVAL_MS after a warning only at debug level, so
   * that callers can't flood the log. */
  #warn(fields: object, message: string): void {
    const { clock, log } = this.#options;
    const nowMs = clock.nowMs();
    if (nowMs - this.#warnedMs < WARN_INTERVAL_MS) return log.debug(fields, message);
    this.#warnedMs = nowMs;
    log.warn(fields, message);
  }
}
