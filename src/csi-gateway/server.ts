import type { EventEmitter } from 'node:events';
import { createServer, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import { Code, CsiError } from '../csi/status.ts';
import type { Address } from '../runtime/address.ts';
import { CallerConnections, type ListenerTls } from './caller-connections.ts';
import { ConnectionReaper, type ReaperLimits } from './connection-reaper.ts';
import { toPairs } from '../csi/grpc-wire.ts';
import { Listener, type NewConnection } from './listener.ts';
import type { GatewayMetrics } from './metrics.ts';
import { sessionMemoryMb } from '../csi/open-session.ts';
import { RequestReceiver, type RequestReceiverOptions } from './request-receiver.ts';

export interface GatewayServerOptions extends Omit<RequestReceiverOptions, 'callers' | 'reaper'> {
  /** Listen addresses, at least one. TLS applies to those on TCP. */
  readonly addresses: readonly Address[];
  readonly tls: ListenerTls | undefined;
  /** Whether plaintext TCP beyond loopback is allowed. */
  readonly insecure: boolean;
  readonly reaperLimits: ReaperLimits;
  /** Largest response sent. */
  readonly maxMessageBytes: number;
  readonly metrics: GatewayMetrics;
}

const WINDOW_BYTES = 1024 * 1024;
/** Streams that one connection may have open at once; further calls wait in the caller. */
const MAX_STREAMS = 1_024;
/** Time for callers to read their last answer after the drain. */
const FLUSH_MS = 1_000;
/** Longest wait, after the drain, for a failover probe, whose answer tells ingest about it. */
const DRAIN_REPORT_MS = 2_000;
/** Limit for the driver's answers, whose texts are sent in headers. Beyond Node's default limit
 * Node would break the stream, and callers would refuse the next ones. */
const MAX_HEADER_BYTES = 16 * 1024 * 1024;

/** The gateway's server for unary gRPC over HTTP/2.
 *
 * It uses node:http2 and not grpc-js, because grpc-js's server knows only registered paths (it
 * answers unknown ones before any interceptor runs, so --allow-all would have to override a private
 * method) and parses metadata that only has to be forwarded. It also takes more CPU per call. */
export class GatewayServer {
  readonly #options: GatewayServerOptions;
  readonly #listeners: readonly Listener[];
  readonly #reaper: ConnectionReaper;
  readonly #callers: CallerConnections;
  readonly #receiver: RequestReceiver;
  readonly #stopTlsUpdates: (() => void) | undefined;

  constructor(options: GatewayServerOptions) {
    this.#options = options;
    const { addresses, clock, log, metrics, reaperLimits, tls } = options;
    const reaper = new ConnectionReaper({
      limits: reaperLimits,
      clock,
      onLateCall: (stream, step) => this.#receiver.endLateCall(stream, step),
      onTooManyCalls: (session) => this.#callers.reportTooManyCalls(session),
    });
    const callers = new CallerConnections({ reaper, metrics, clock, log });
    this.#reaper = reaper;
    this.#callers = callers;
    this.#receiver = new RequestReceiver({ ...options, callers, reaper });
    const onConnection = this.#createHttp2();
    this.#listeners = addresses.map((address) => {
      const listenerTls = address.kind === 'tcp' ? tls : undefined;
      return new Listener({ address, tls: listenerTls, callers, onConnection });
    });
    this.#stopTlsUpdates = tls?.source.onChange((next, before) => {
      for (const listener of this.#listeners) listener.setTls(next);
      if (next.ca !== before.ca) callers.revokeUntrusted(next.ca);
    });
  }

  /** Creates an HTTP/2 server that does not listen itself.
   * @returns begins HTTP/2 on a connection */
  #createHttp2(): (connection: NewConnection) => void {
    const { log, maxMessageBytes, maxRequestBytes } = this.#options;
    const server = createServer({
      settings: {
        initialWindowSize: WINDOW_BYTES,
        maxConcurrentStreams: MAX_STREAMS,
        enablePush: false,
      },
      maxSessionMemory: sessionMemoryMb(Math.max(maxMessageBytes, maxRequestBytes)),
      maxSendHeaderBlockLength: MAX_HEADER_BYTES,
    });
    // A session does not give access to its connection. Node emits 'session' while it handles
    // 'connection', so the connection that was handed over last belongs to the session.
    let latest: NewConnection | undefined;
    server.on('session', (session: ServerHttp2Session) => {
      if (latest !== undefined) this.#callers.add(session, latest);
    });
    server.on('sessionError', (error: Error) =>
      log.debug({ err: error }, 'a caller broke its connection'),
    );
    // Node's types leave out the fourth argument, the headers in their order and with duplicates.
    const events: EventEmitter = server;
    events.on(
      'stream',
      (stream: ServerHttp2Stream, _headers: unknown, _flags: number, raw: readonly string[]) =>
        this.#receiver.receive(stream, toPairs(raw)),
    );
    return (connection) => {
      latest = connection;
      server.emit('connection', connection.stream);
    };
  }

  /** @returns where it listens, in the order of the options
   * @throws UsageError as listen() in listen.ts does; all servers are closed then */
  async listen(): Promise<readonly Address[]> {
    const { insecure, tls } = this.#options;
    const beyondLoopback = insecure || tls !== undefined;
    const bound: Address[] = [];
    try {
      for (const listener of this.#listeners) bound.push(await listener.listen({ beyondLoopback }));
      return bound;
    } catch (error) {
      for (const listener of this.#listeners) void listener.close();
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
    const closed = Promise.all(this.#listeners.map((listener) => listener.close()));
    this.#callers.closeGracefully();
    const flush = setTimeout(() => this.#callers.destroyAll(), FLUSH_MS);
    await closed;
    clearTimeout(flush);
    this.#stopTimers();
  }
}
