import type { Http2Session, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { networkOf } from '../runtime/network-of.ts';
import type { TlsSource } from '../runtime/tls-files.ts';
import type { CertificateName } from '../runtime/certificate-names.ts';
import type { ConnectionReaper } from './connection-reaper.ts';
import { type Caller, isStillTrusted, revokeCaller } from './identify-caller.ts';
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
/** Many times what ingest and jobs need. Beyond that, a new connection replaces one that is not in
 * use; see ConnectionReaper.evict. */
const MAX_CONNECTIONS = 256;
/** Of these, how many one allowed name may have. */
const MAX_PER_NAME = 192;
/** How many one network may have. Callers on this machine share its loopback address. */
const MAX_PER_NETWORK = 64;
/** How many callers that may not call may have together. */
const MAX_REFUSED = 16;
/** How many callers without a certificate may have on TCP before the driver has answered a call of
 * theirs. Each holds up to 80 KiB that wait to be read. */
const MAX_UNPROVEN = 64;
/** At most one warning about rejected callers in this time. */
const WARN_INTERVAL_MS = 10_000;

/** Where a connection comes from. */
export interface ConnectionOrigin {
  readonly socket: Socket;
  readonly caller: Caller;
  /** To be called when the driver has answered a call of this connection. */
  readonly onProven: () => void;
}

interface Connection {
  caller: Caller;
  isProven: boolean;
  /** '' for a unix socket. */
  readonly network: string;
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

  /** Registers a new connection, or destroys it if there are too many and none can make room. */
  add(session: ServerHttp2Session, { socket, caller, onProven }: ConnectionOrigin): void {
    const { metrics, reaper } = this.#options;
    // session.destroy() alone waits for pending writes, forever if the peer does not read. Its
    // 'close' comes later, when many more connections may have been made.
    const destroy = (): void => {
      this.#connections.delete(session);
      session.destroy();
      socket.destroy();
    };
    const network = networkOf(socket.remoteAddress ?? '');
    const connection = { caller, network, destroy, isProven: false };
    if (caller.refusal !== undefined) {
      metrics.countTurnedAway('name');
      const fields = { caller: caller.name, reason: caller.refusal.details };
      this.#warn(fields, 'the calls of a caller are refused');
    }
    if (!this.#makeRoom(connection)) return destroy();
    this.#connections.set(session, connection);
    reaper.addConnection(session, {
      destroy,
      onProven: () => {
        connection.isProven = true;
        onProven();
      },
    });
    if (caller.refusal === undefined) session.setLocalWindowSize(WINDOW_BYTES);
    metrics.changeConnections(1);
    session.once('close', () => {
      this.#connections.delete(session);
      metrics.changeConnections(-1);
    });
  }

  /** Ends other connections where there are too many.
   * @returns whether there is room for this one */
  #makeRoom(connection: Connection): boolean {
    const { caller, network } = connection;
    const isLocal = network === '' || network === 'loopback';
    return (
      (!isUnproven(connection) || this.#keepBelow(MAX_UNPROVEN, caller, isUnproven)) &&
      (caller.refusal === undefined || this.#keepBelow(MAX_REFUSED, caller, isRefused)) &&
      (caller.certificate === undefined ||
        this.#keepBelow(MAX_PER_NAME, caller, (other) => other.caller.name === caller.name)) &&
      (isLocal || this.#keepBelow(MAX_PER_NETWORK, caller, (other) => other.network === network)) &&
      this.#keepBelow(MAX_CONNECTIONS, caller, () => true)
    );
  }

  /** Ends one of these connections if there are `max` or more: first one whose caller may not call;
   * one whose caller may call never makes room for a caller who may not.
   * @returns whether there are fewer now */
  #keepBelow(max: number, caller: Caller, isCounted: (other: Connection) => boolean): boolean {
    const { metrics, reaper } = this.#options;
    const counted = [...this.#connections].filter(([, connection]) => isCounted(connection));
    if (counted.length < max) return true;
    metrics.countTurnedAway('too-many');
    const refused = counted.filter(([, connection]) => isRefused(connection));
    if (reaper.evict(refused.map(([session]) => session))) return true;
    return caller.refusal === undefined && reaper.evict(counted.map(([session]) => session));
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
  rejectHandshake(reason: string, { remoteAddress }: Socket): void {
    this.#options.metrics.countTurnedAway('handshake');
    this.#warn({ from: remoteAddress, reason }, 'a caller’s TLS handshake failed');
  }

  /** Counts and logs a connection that was ended before it began. */
  rejectSocket({ remoteAddress }: Socket): void {
    this.#options.metrics.countTurnedAway('too-many');
    this.#warn(
      { from: remoteAddress },
      'a connection was ended: it was silent, or its network opens too many',
    );
  }

  /** Counts and logs a connection that the reaper ends for its many calls. */
  reportTooManyCalls(session: Http2Session): void {
    this.#options.metrics.countTurnedAway('too-many');
    const caller = this.#connections.get(session)?.caller.name;
    this.#warn({ caller }, 'a caller had too many calls open or waiting: its connection was ended');
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

function isUnproven({ caller, network, isProven }: Connection): boolean {
  return caller.certificate === undefined && network !== '' && !isProven;
}

function isRefused({ caller }: Connection): boolean {
  return caller.refusal !== undefined;
}
