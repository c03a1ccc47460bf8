import type { EventEmitter } from 'node:events';
import {
  createSecureServer,
  createServer,
  type Http2SecureServer,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Socket } from 'node:net';
import type { SecureContextOptions, TLSSocket } from 'node:tls';
import { Code, CsiError } from '../csi/status.ts';
import type { Address } from '../runtime/address.ts';
import type { TlsMaterial } from '../runtime/tls-files.ts';
import { CallerConnections, type ListenerTls } from './caller-connections.ts';
import { ConnectionReaper, type ReaperLimits } from './connection-reaper.ts';
import { toPairs } from './grpc-wire.ts';
import { listen } from './listen.ts';
import type { GatewayMetrics } from './metrics.ts';
import { sessionMemoryMb } from './open-session.ts';
import { RequestReceiver, type RequestReceiverOptions } from './request-receiver.ts';

export interface GatewayServerOptions extends Omit<RequestReceiverOptions, 'callers' | 'reaper'> {
  /** Listen addresses, at least one. TLS applies to those on TCP. */
  readonly addresses: readonly Address[];
  readonly tls: ListenerTls | undefined;
  /** Whether plaintext TCP beyond loopback is allowed. */
  readonly insecure: boolean;
  readonly reaperLimits: ReaperLimits;
  readonly metrics: GatewayMetrics;
}

const WINDOW_BYTES = 1024 * 1024;
/** Streams that one connection may have open at once; further calls wait in the caller. */
const MAX_STREAMS = 1_024;
/** Time for callers to read their last answer after the drain. */
const FLUSH_MS = 1_000;
/** Longest wait, after the drain, for a failover probe, whose answer tells ingest about it. */
const DRAIN_REPORT_MS = 2_000;
/** Connections per listener, including those in the TLS handshake. */
const MAX_SOCKETS = 1_024;
/** Limit for the driver's answers, whose texts are sent in headers. Beyond Node's default limit
 * Node would break the stream, and callers would refuse the next ones. */
const MAX_HEADER_BYTES = 16 * 1024 * 1024;
const HANDSHAKE_MS = 10_000;

/** The gateway's server for unary gRPC over HTTP/2.
 *
 * It uses node:http2 and not grpc-js, because grpc-js's server knows only registered paths (it
 * answers unknown ones before any interceptor runs, so --allow-all would have to override a private
 * method) and parses metadata that only has to be forwarded. It also takes more CPU per call. */
export class GatewayServer {
  readonly #options: GatewayServerOptions;
  readonly #servers: readonly (Http2Server | Http2SecureServer)[];
  readonly #reaper: ConnectionReaper;
  readonly #callers: CallerConnections;
  readonly #receiver: RequestReceiver;
  readonly #stopTlsUpdates: (() => void) | undefined;

  constructor(options: GatewayServerOptions) {
    this.#options = options;
    const { clock, log, metrics, reaperLimits, tls } = options;
    const reaper = new ConnectionReaper({
      limits: reaperLimits,
      clock,
      onLateCall: (stream, step) => this.#receiver.endLateCall(stream, step),
      onTooManyWaiting: (session) => this.#callers.reportTooManyWaiting(session),
    });
    const callers = new CallerConnections({ reaper, metrics, clock, log });
    this.#reaper = reaper;
    this.#callers = callers;
    this.#receiver = new RequestReceiver({ ...options, callers, reaper });
    this.#servers = options.addresses.map((address) =>
      this.#createServer(address.kind === 'tcp' ? tls : undefined),
    );
    this.#stopTlsUpdates = tls?.source.onChange((next, before) => {
      for (const server of this.#servers)
        if ('setSecureContext' in server) server.setSecureContext(secureContext(next));
      if (next.ca !== before.ca) callers.revokeUntrusted(next.ca);
    });
  }

  #createServer(tls: ListenerTls | undefined): Http2Server | Http2SecureServer {
    const common = {
      settings: {
        initialWindowSize: WINDOW_BYTES,
        maxConcurrentStreams: MAX_STREAMS,
        enablePush: false,
      },
      maxSessionMemory: sessionMemoryMb(this.#options.maxMessageBytes),
      maxSendHeaderBlockLength: MAX_HEADER_BYTES,
    };
    const server =
      tls === undefined
        ? createServer(common)
        : createSecureServer({
            ...common,
            ...secureContext(tls.source.current),
            requestCert: true,
            rejectUnauthorized: true,
            ALPNProtocols: ['h2'],
            handshakeTimeout: HANDSHAKE_MS,
          });
    server.maxConnections = MAX_SOCKETS;
    this.#addListeners(server, tls);
    return server;
  }

  #addListeners(server: EventEmitter, tls: ListenerTls | undefined): void {
    const { log, metrics } = this.#options;
    // Node drops connections above maxConnections.
    server.on('drop', () => metrics.countTurnedAway('too-many'));
    server.on('tlsClientError', (error: Error, socket: TLSSocket) =>
      this.#callers.rejectHandshake(error, socket),
    );
    // A session does not give access to its socket. Node emits 'session' while it handles the event
    // of the new connection, so the socket that was seen last belongs to the session.
    let socket: Socket | undefined;
    server.prependListener(
      tls === undefined ? 'connection' : 'secureConnection',
      (newSocket: Socket) => (socket = newSocket),
    );
    server.on('session', (session: ServerHttp2Session) => {
      if (socket !== undefined) this.#callers.add(session, socket, tls);
    });
    server.on('sessionError', (error: Error) =>
      log.debug({ err: error }, 'a caller broke its connection'),
    );
    // Node's types leave out the fourth argument, the headers in their order and with duplicates.
    server.on(
      'stream',
      (stream: ServerHttp2Stream, _headers: unknown, _flags: number, raw: readonly string[]) =>
        this.#receiver.receive(stream, toPairs(raw)),
    );
  }

  /** @returns where it listens, in the order of the options
   * @throws UsageError as listen() in listen.ts does; all servers are closed then */
  async listen(): Promise<readonly Address[]> {
    const { addresses, insecure, tls } = this.#options;
    const beyondLoopback = insecure || tls !== undefined;
    const bound: Address[] = [];
    try {
      for (const [index, address] of addresses.entries()) {
        const server = this.#servers[index];
        if (server !== undefined) bound.push(await listen(server, address, { beyondLoopback }));
      }
      return bound;
    } catch (error) {
      for (const server of this.#servers) server.close();
      this.#stopTimers();
      throw error;
    }
  }

  #stopTimers(): void {
    this.#stopTlsUpdates?.();
    this.#reaper.close();
  }

  /** Refuses new calls, not forwarded. Waits at most `graceMs` for calls under way, answers the
   * remaining ones as ambiguous, and closes. */
  async drain(graceMs: number): Promise<void> {
    const { clock, forwarder, health, log } = this.#options;
    const receiver = this.#receiver;
    forwarder.drain();
    health.close();
    if (receiver.runningCalls > 0)
      log.info({ calls: receiver.runningCalls, graceMs }, 'waiting for calls under way');
    await receiver.waitUntilIdle(graceMs);
    if (receiver.runningCalls > 0)
      log.warn(
        { calls: receiver.runningCalls },
        'the grace period is over: calls under way are answered as ambiguous',
      );
    const details = 'the gateway stopped before the driver answered';
    receiver.abortCalls(new CsiError({ code: Code.Unavailable, details, method: '' }));
    // An ingest that learns of the drain moves to another gateway at once. If this gateway just
    // disappeared, ingest would have to wait until calls under way here must have ended.
    if (forwarder.isProbedForFailover)
      await clock.sleep(Math.min(graceMs, DRAIN_REPORT_MS), forwarder.drainReported);
    await this.#close();
  }

  async #close(): Promise<void> {
    const closed = Promise.all(
      this.#servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))),
    );
    this.#callers.closeGracefully();
    const flush = setTimeout(() => this.#callers.destroyAll(), FLUSH_MS);
    await closed;
    clearTimeout(flush);
    this.#stopTimers();
  }
}

function secureContext({ ca, cert, key }: TlsMaterial): SecureContextOptions {
  return { ca, cert, key, minVersion: 'TLSv1.3' };
}
