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
import type { TLSSocket } from 'node:tls';
import { Code, CsiError } from '../csi/status.ts';
import type { TlsMaterial } from '../runtime/tls-files.ts';
import type { Address } from '../runtime/address.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { CallerConnections, type ListenerTls } from './caller-connections.ts';
import type { Forwarder } from './forwarder.ts';
import type { HealthService } from './health-service.ts';
import { listen } from './listen.ts';
import type { GatewayMetrics } from './metrics.ts';
import { sessionMemoryMb } from './open-session.ts';
import { ConnectionReaper, defaultReaperLimits, type ReaperLimits } from './connection-reaper.ts';
import { RequestReceiver } from './request-receiver.ts';
import { toPairs } from './grpc-wire.ts';

export interface GatewayServerOptions {
  /** At least one; TLS is for those that are TCP. */
  readonly addresses: readonly Address[];
  readonly tls: ListenerTls | undefined;
  /** Plaintext TCP beyond loopback. */
  readonly insecure: boolean;
  readonly reaperLimits?: ReaperLimits;
  readonly forwarder: Forwarder;
  readonly health: HealthService;
  readonly metrics: GatewayMetrics;
  readonly maxMessageBytes: number;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface GatewayServer {
  /** Where it listens, in the order of the options. */
  readonly addresses: readonly Address[];
  /** Refuses new calls (not forwarded), lets those under way end for at most `graceMs`, answers the
   * rest as ambiguous, closes. */
  drain(graceMs: number): Promise<void>;
}

const WINDOW_BYTES = 1024 * 1024;
/** Streams that one caller may have open at once; the next ones wait in the caller. */
const MAX_STREAMS = 1_024;
/** For a caller to read its last answer after the drain. */
const FLUSH_MS = 1_000;
/** Longest wait for a caller that chooses between gateways to hear that this one is drained. */
const FAREWELL_MS = 2_000;
/** Connections per listener, with those that are still shaking hands. */
const MAX_SOCKETS = 1_024;
/** A driver's words go out in headers. Beyond its own limit Node breaks the stream, and callers
 * refuse the next ones. */
const MAX_HEADER_BYTES = 16 * 1024 * 1024;
const HANDSHAKE_MS = 10_000;

/** Opens the gateway's door: unary gRPC over HTTP/2, each call handed to the forwarder whole.
 *
 * node:http2 and not grpc-js, whose server knows only registered paths (an unknown one is answered
 * before any interceptor runs, so --allow-all would have to override a private method), and parses
 * metadata that has only to pass. It also costs less CPU per call.
 * @throws UsageError as listen() does */
export async function startGatewayServer(options: GatewayServerOptions): Promise<GatewayServer> {
  const server = new Http2Gateway(options);
  const addresses = await server.open();
  return { addresses, drain: (graceMs) => server.drain(graceMs) };
}

class Http2Gateway {
  readonly #options: GatewayServerOptions;
  readonly #servers: readonly (Http2Server | Http2SecureServer)[];
  readonly #patience: ConnectionReaper;
  readonly #callers: CallerConnections;
  readonly #reception: RequestReceiver;
  readonly #forgetTls: (() => void) | undefined;

  constructor(options: GatewayServerOptions) {
    this.#options = options;
    const { clock, forwarder, health, log, maxMessageBytes, metrics, tls } = options;
    const patience = new ConnectionReaper({
      limits: options.reaperLimits ?? defaultReaperLimits,
      clock,
      onTooLate: (stream, wait) => this.#reception.endLateCall(stream, wait),
      onTooMany: (session) => this.#callers.reportTooManyWaiting(session),
    });
    this.#patience = patience;
    this.#callers = new CallerConnections({ reaper, metrics, clock, log });
    this.#reception = new RequestReceiver({
      callers: this.#callers,
      forwarder,
      health,
      reaper,
      maxMessageBytes,
      clock,
      log,
    });
    this.#servers = options.addresses.map((address) =>
      this.#makeServer(address.kind === 'tcp' ? tls : undefined),
    );
    this.#forgetTls = tls?.source.onChange((next, before) => {
      for (const server of this.#servers)
        if ('setSecureContext' in server) server.setSecureContext(secureContext(next));
      if (next.ca !== before.ca) this.#callers.revokeUntrusted(next.ca);
    });
  }

  #makeServer(tls: ListenerTls | undefined): Http2Server | Http2SecureServer {
    const { log, maxMessageBytes } = this.#options;
    const settings = {
      initialWindowSize: WINDOW_BYTES,
      maxConcurrentStreams: MAX_STREAMS,
      enablePush: false,
    };
    const common = {
      settings,
      maxSessionMemory: sessionMemoryMb(maxMessageBytes),
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
    // The typings know the events of only one of the two kinds.
    const events: EventEmitter = server;
    events.on('drop', () => this.#callers.countDropped());
    events.on('tlsClientError', (error: Error, socket: TLSSocket) =>
      this.#callers.rejectHandshake(error, socket),
    );
    // A session does not give its socket away; it is made, and told, while its connection is being
    // told.
    let socket: Socket | undefined;
    events.prependListener(
      tls === undefined ? 'connection' : 'secureConnection',
      (arriving: Socket) => (socket = arriving),
    );
    events.on('session', (session: ServerHttp2Session) => {
      if (socket !== undefined) this.#callers.add(session, socket, tls);
    });
    events.on('sessionError', (error: Error) =>
      log.debug({ err: error }, 'a caller broke its connection'),
    );
    // The typings leave out the fourth argument, the headers as they came.
    events.on(
      'stream',
      (stream: ServerHttp2Stream, _headers: unknown, _flags: number, raw: readonly string[]) =>
        this.#reception.receive(stream, toPairs(raw)),
    );
    return server;
  }

  /** @throws UsageError as listen() does; what was opened before is closed again */
  async open(): Promise<readonly Address[]> {
    const { addresses, insecure, tls } = this.#options;
    const opened: Address[] = [];
    try {
      for (const [index, address] of addresses.entries()) {
        const server = this.#servers[index];
        if (server !== undefined)
          opened.push(
            await listen(server, address, { beyondLoopback: insecure || tls !== undefined }),
          );
      }
    } catch (error) {
      for (const server of this.#servers) server.close();
      this.#rest();
      throw error;
    }
    return opened;
  }

  #rest(): void {
    this.#forgetTls?.();
    this.#patience.close();
  }

  async drain(graceMs: number): Promise<void> {
    const { clock, forwarder, health, log } = this.#options;
    const reception = this.#reception;
    forwarder.drain();
    health.close();
    if (reception.runningCalls > 0)
      log.info({ calls: reception.runningCalls, graceMs }, 'waiting for calls under way');
    await reception.waitUntilIdle(graceMs);
    if (reception.runningCalls > 0)
      log.warn(
        { calls: reception.runningCalls },
        'the grace period is over: calls under way are answered as ambiguous',
      );
    reception.abortCalls(
      new CsiError({
        code: Code.Unavailable,
        details: 'the gateway stopped before the driver answered',
        method: '',
      }),
    );
    // An ingest that chooses between gateways moves to another at once when it hears this; else it
    // must assume the worst of a door that is shut.
    if (forwarder.isProbedForFailover)
      await clock.sleep(Math.min(graceMs, FAREWELL_MS), forwarder.drainReported);
    const closed = Promise.all(
      this.#servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))),
    );
    this.#callers.closeGracefully();
    const flush = setTimeout(() => this.#callers.destroyAll(), FLUSH_MS);
    await closed;
    clearTimeout(flush);
    this.#rest();
  }
}

function secureContext({ ca, cert, key }: TlsMaterial): {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  readonly minVersion: 'TLSv1.3';
} {
  return { ca, cert, key, minVersion: 'TLSv1.3' };
}
