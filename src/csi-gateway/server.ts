import type { EventEmitter } from 'node:events';
import { constants, createSecureServer, createServer } from 'node:http2';
import type { Http2SecureServer, Http2Server, Http2Session, OutgoingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { CANCELED_DETAILS, Code, CsiError, DRAINING_TRAILER, DRIVER_STATUS_TRAILER, NOT_FORWARDED_TRAILER } from '../csi/status.ts';
import type { TlsMaterial, TlsSource } from '../csi/tls-files.ts';
import type { Address } from '../runtime/address.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { identifyCaller, isStillTrusted, outdated } from './caller.ts';
import type { Caller } from './caller.ts';
import type { CertificateName } from './client-names.ts';
import { sessionMemoryMb } from './driver-connection.ts';
import type { Forwarder, InboundCall, Reply } from './forwarder.ts';
import { isHealthPath } from './health.ts';
import type { Health } from './health.ts';
import { listen } from './listener.ts';
import type { GatewayMetrics } from './metrics.ts';
import { defaultPatience, Patience } from './patience.ts';
import type { PatienceLimits } from './patience.ts';
import { encodeMessage, pairsOf, passOn } from './wire.ts';
import type { HeaderPairs } from './wire.ts';

/** What the door asks of callers that come by TCP. */
export interface DoorTls {
  readonly source: TlsSource;
  /** Who may call; anybody else with a good certificate may ask for the gateway's health and nothing more. */
  readonly allowedNames: readonly CertificateName[];
}

export interface GatewayServerOptions {
  /** At least one; TLS is for those that are TCP. */
  readonly addresses: readonly Address[];
  readonly tls: DoorTls | undefined;
  /** Plaintext TCP beyond loopback. */
  readonly insecure: boolean;
  readonly patience?: PatienceLimits;
  readonly forwarder: Forwarder;
  readonly health: Health;
  readonly metrics: GatewayMetrics;
  readonly maxMessageBytes: number;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface GatewayServer {
  /** Where it listens, in the order of the options. */
  readonly addresses: readonly Address[];
  /** Whether no call is under way. */
  readonly isIdle: boolean;
  /** Refuses new calls (not forwarded), lets those under way end for at most `graceMs`, answers the rest as ambiguous, closes. */
  drain(graceMs: number): Promise<void>;
}

const WINDOW_BYTES = 1024 * 1024;
/** Streams that one caller may have open at once; the next ones wait in the caller. */
const MAX_STREAMS = 1_024;
// The date, if any, is the driver's to say (the typings don't know sendDate, so these are not literals in place).
const WHOLE = { endStream: true, sendDate: false };
const WITH_TRAILERS = { waitForTrailers: true, sendDate: false };
const CALLER_GONE = new CsiError({ code: Code.Canceled, details: CANCELED_DETAILS, method: '' });
/** For a caller to read its last answer after the drain. */
const FLUSH_MS = 1_000;
/** Longest wait for a caller that chooses between gateways to hear that this one is drained. */
const FAREWELL_MS = 2_000;
/** Connections at once: many times what ingest and jobs open. One more takes the place of the one that is missed least. */
const MAX_CONNECTIONS = 256;
/** The same, per listener, with those that are still shaking hands. */
const MAX_SOCKETS = 1_024;
const HANDSHAKE_MS = 10_000;
/** At most one warning in that time about callers that were turned away. */
const WARN_EVERY_MS = 10_000;

/** Opens the gateway's door: unary gRPC over HTTP/2, each call handed to the forwarder whole.
 *
 * node:http2 and not grpc-js, whose server knows only registered paths (an unknown one is answered before any interceptor runs, so
 * --allow-all would have to override a private method), and parses metadata that has only to pass. It also costs less CPU per call.
 * @throws UsageError as listen() does */
export async function startGatewayServer(options: GatewayServerOptions): Promise<GatewayServer> {
  const server = new Http2Gateway(options);
  const addresses = await server.open();
  return {
    addresses,
    get isIdle() {
      return server.isIdle;
    },
    drain: (graceMs) => server.drain(graceMs),
  };
}

class Http2Gateway {
  readonly #options: GatewayServerOptions;
  readonly #servers: readonly (Http2Server | Http2SecureServer)[];
  readonly #sessions = new Set<ServerHttp2Session>();
  readonly #callers = new WeakMap<Http2Session, Caller>();
  readonly #calls = new Set<AbortController>();
  readonly #patience: Patience;
  readonly #forgetTls: (() => void) | undefined;
  #bufferedBytes = 0;
  #warnedMs = -Infinity;
  #idle: () => void = () => undefined;

  constructor(options: GatewayServerOptions) {
    this.#options = options;
    const { clock, tls } = options;
    this.#patience = new Patience({
      limits: options.patience ?? defaultPatience,
      clock,
      onTooLate: (stream, phase) => this.#tooLate(stream, phase),
    });
    this.#servers = options.addresses.map((address) => this.#makeServer(address.kind === 'tcp' ? tls : undefined));
    this.#forgetTls = tls?.source.onChange((next, before) => {
      for (const server of this.#servers) if ('setSecureContext' in server) server.setSecureContext(secureContext(next));
      if (next.ca !== before.ca) this.#reconsider(next.ca);
    });
  }

  #makeServer(tls: DoorTls | undefined): Http2Server | Http2SecureServer {
    const { log, maxMessageBytes, metrics } = this.#options;
    const settings = { initialWindowSize: WINDOW_BYTES, maxConcurrentStreams: MAX_STREAMS, enablePush: false };
    const common = { settings, maxSessionMemory: sessionMemoryMb(maxMessageBytes) };
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
    events.on('drop', () => metrics.turnedAway('too-many'));
    events.on('tlsClientError', (error: Error, socket: TLSSocket) => {
      metrics.turnedAway('handshake');
      this.#warn({ from: socket.remoteAddress, reason: error.message }, 'a caller’s TLS handshake failed');
    });
    events.on('session', (session: ServerHttp2Session) => this.#welcome(session, tls));
    events.on('sessionError', (error: Error) => log.debug({ err: error }, 'a caller broke its connection'));
    // The typings leave out the fourth argument, the headers as they came.
    events.on('stream', (stream: ServerHttp2Stream, _headers: unknown, _flags: number, raw: readonly string[]) =>
      this.#receive(stream, pairsOf(raw)),
    );
    return server;
  }

  /** Whom the new authorities would not let in may call no more; the others don't notice. */
  #reconsider(authorities: string): void {
    for (const session of this.#sessions) {
      const caller = this.#callers.get(session);
      if (caller?.certificate === undefined || isStillTrusted(caller.certificate, authorities, this.#options.clock.nowMs())) continue;
      this.#callers.set(session, outdated(caller, 'is signed by no authority that is trusted now'));
      this.#patience.unwelcome(session);
    }
  }

  /** Who is calling, by what was shown at the handshake. */
  #callerOf(stream: ServerHttp2Stream): Caller | undefined {
    const { session } = stream;
    const caller = session === undefined ? undefined : this.#callers.get(session);
    if (session === undefined || caller === undefined || this.#options.clock.nowMs() < caller.notAfterMs) return caller;
    this.#patience.unwelcome(session);
    return outdated(caller, 'has ended');
  }

  #welcome(session: ServerHttp2Session, tls: DoorTls | undefined): void {
    const { metrics } = this.#options;
    if (this.#sessions.size >= MAX_CONNECTIONS) {
      metrics.turnedAway('too-many');
      if (!this.#patience.evict()) return session.destroy();
    }
    const caller = identifyCaller(session, tls?.allowedNames);
    this.#callers.set(session, caller);
    if (caller.refusal !== undefined) {
      metrics.turnedAway('name');
      this.#warn({ caller: caller.name, reason: caller.refusal.details }, 'a caller may not call');
    }
    this.#sessions.add(session);
    this.#patience.arrived(session);
    session.setLocalWindowSize(4 * WINDOW_BYTES);
    metrics.connections(1);
    session.once('close', () => {
      this.#sessions.delete(session);
      metrics.connections(-1);
    });
  }

  /** Warns of those who were turned away, but lets none of them fill the log. */
  #warn(fields: object, message: string): void {
    const { clock, log } = this.#options;
    const nowMs = clock.nowMs();
    if (nowMs - this.#warnedMs < WARN_EVERY_MS) return log.debug(fields, message);
    this.#warnedMs = nowMs;
    log.warn(fields, message);
  }

  #tooLate(stream: ServerHttp2Stream, phase: 'request' | 'answer'): void {
    if (phase === 'answer') return stream.close(constants.NGHTTP2_CANCEL);
    if (stream.headersSent || stream.destroyed) return;
    answer(stream, this.#options.forwarder.refuse('slow', Code.DeadlineExceeded, 'not forwarded: the request did not arrive in time'));
  }

  /** @throws UsageError as listen() does; what was opened before is closed again */
  async open(): Promise<readonly Address[]> {
    const { addresses, insecure, tls } = this.#options;
    const opened: Address[] = [];
    try {
      for (const [index, address] of addresses.entries()) {
        const server = this.#servers[index];
        if (server !== undefined) opened.push(await listen(server, address, { beyondLoopback: insecure || tls !== undefined }));
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

  get isIdle(): boolean {
    return this.#calls.size === 0;
  }

  async drain(graceMs: number): Promise<void> {
    const { clock, forwarder, health, log } = this.#options;
    forwarder.drain();
    health.close();
    if (this.#calls.size > 0) {
      log.info({ calls: this.#calls.size, graceMs }, 'waiting for calls under way');
      const done = new AbortController();
      this.#idle = (): void => done.abort();
      await clock.sleep(graceMs, done.signal);
    }
    if (this.#calls.size > 0) log.warn({ calls: this.#calls.size }, 'the grace period is over: calls under way are answered as ambiguous');
    for (const call of this.#calls) {
      call.abort(new CsiError({ code: Code.Unavailable, details: 'the gateway stopped before the driver answered', method: '' }));
    }
    // An ingest that chooses between gateways moves to another at once when it hears this; else it must assume the worst of a door that is shut.
    if (forwarder.isWatched) await clock.sleep(Math.min(graceMs, FAREWELL_MS), forwarder.drainedTold);
    const closed = Promise.all(this.#servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))));
    for (const session of this.#sessions) session.close();
    const flush = setTimeout(() => {
      for (const session of this.#sessions) session.destroy();
    }, FLUSH_MS);
    await closed;
    clearTimeout(flush);
    this.#rest();
  }

  #receive(stream: ServerHttp2Stream, headers: HeaderPairs): void {
    // What went wrong on a stream its 'close' tells; without a listener the error would end the process.
    stream.on('error', (error) => this.#options.log.trace({ err: error }, 'stream error'));
    this.#patience.began(stream);
    const pseudo = new Map(headers.filter(([name]) => name.startsWith(':')));
    if (pseudo.get(':method') !== 'POST') return rejectHttp(stream, 405);
    if (headers.find(([name]) => name === 'content-type')?.[1].startsWith('application/grpc') !== true) return rejectHttp(stream, 415);

    const { clock, forwarder, health, maxMessageBytes } = this.#options;
    const gone = new AbortController();
    const path = pseudo.get(':path') ?? '';
    const caller = this.#callerOf(stream);
    const call = { path, headers, receivedMs: clock.nowMs(), signal: gone.signal, caller: caller?.name ?? '' };
    const chunks: Buffer[] = [];
    let receivedBytes = 0;
    let keptBytes = 0;
    const drop = (): void => {
      this.#bufferedBytes -= keptBytes;
      keptBytes = 0;
      chunks.length = 0;
    };
    /** What still comes is read and forgotten; a caller stops when it has the answer. */
    const refuse = (...why: Parameters<Forwarder['refuse']>): void => {
      drop();
      answer(stream, forwarder.refuse(...why));
      this.#patience.answered(stream);
    };
    stream.on('close', () => {
      drop();
      // Only while somebody works on it: an abort costs more than the rest of a call's bookkeeping.
      if (this.#calls.has(gone)) gone.abort(CALLER_GONE);
    });
    stream.on('data', (chunk: Buffer) => {
      receivedBytes += chunk.length;
      if (receivedBytes > 4 * maxMessageBytes) return stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
      if (stream.headersSent) return;
      if (receivedBytes > maxMessageBytes + 5) {
        const details = `the request of ${path.slice(0, 200)} is larger than ${maxMessageBytes} bytes: raise the gateway's --max-message-bytes`;
        return refuse('too-large', Code.ResourceExhausted, details);
      }
      // One message of any allowed size can always come; a crowd of them could not be held.
      if (this.#bufferedBytes + chunk.length > 2 * maxMessageBytes + 10 && this.#bufferedBytes > keptBytes) {
        return refuse('busy', Code.Unavailable, 'not forwarded: the gateway holds as many request bytes as it may');
      }
      chunks.push(chunk);
      keptBytes += chunk.length;
      this.#bufferedBytes += chunk.length;
    });
    stream.on('end', () => {
      if (stream.headersSent || stream.destroyed) return;
      const body = chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks);
      this.#patience.working(stream);
      if (isHealthPath(path)) return health.answer(stream, path, body);
      void this.#serve(stream, { ...call, body }, gone);
    });
    // A certificate that our authority signed may ask how we are, not more.
    if (caller?.refusal !== undefined && !isHealthPath(path)) refuse('caller', caller.refusal.code, caller.refusal.details);
  }

  async #serve(stream: ServerHttp2Stream, call: InboundCall, gone: AbortController): Promise<void> {
    this.#calls.add(gone);
    try {
      answer(stream, await this.#options.forwarder.forward(call));
      this.#patience.answered(stream);
    } catch (error) {
      this.#options.log.error({ err: error, method: call.path.slice(0, 200) }, 'forwarding failed: a defect of sutler, please report it');
      stream.close(constants.NGHTTP2_INTERNAL_ERROR);
    } finally {
      this.#calls.delete(gone);
      if (this.#calls.size === 0) this.#idle();
    }
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

function answer(stream: ServerHttp2Stream, reply: Reply): void {
  if (stream.destroyed || stream.closed) return;
  if (reply.kind === 'gateway') {
    stream.respond(ownStatus(reply), WHOLE);
    return;
  }
  const { headers, trailers, body } = reply.answer;
  const marked = { ...passOn(trailers), [DRIVER_STATUS_TRAILER]: '1' };
  try {
    if (headers === undefined) {
      stream.respond({ ':status': 200, ...marked }, WHOLE);
      return;
    }
    stream.once('wantTrailers', () => sendTrailers(stream, marked));
    stream.respond({ ':status': 200, ...passOn(headers) }, WITH_TRAILERS);
    stream.end(body);
  } catch (error) {
    // Header fields that came in but can't go out again. The driver acted, its answer is lost: ambiguous.
    if (stream.headersSent) throw error;
    const why = error instanceof Error ? error.message : String(error);
    const details = `the driver's answer has a header that can't be passed on: ${why}`;
    stream.respond(ownStatus({ code: Code.Internal, details, notForwarded: false }), WHOLE);
  }
}

function sendTrailers(stream: ServerHttp2Stream, trailers: OutgoingHttpHeaders): void {
  try {
    stream.sendTrailers(trailers);
  } catch {
    // Without trailers the caller sees a cut call: ambiguous, as it must be.
    stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  }
}

function ownStatus(reply: {
  readonly code: number;
  readonly details: string;
  readonly notForwarded: boolean;
  readonly draining?: number;
}): OutgoingHttpHeaders {
  return {
    ':status': 200,
    'content-type': 'application/grpc',
    'grpc-status': String(reply.code),
    'grpc-message': encodeMessage(reply.details),
    ...(reply.notForwarded ? { [NOT_FORWARDED_TRAILER]: '1' } : {}),
    ...(reply.draining === undefined ? {} : { [DRAINING_TRAILER]: String(reply.draining) }),
  };
}

function rejectHttp(stream: ServerHttp2Stream, status: number): void {
  stream.respond({ ':status': status }, { endStream: true });
  // Read to the end and forgotten: closing the stream here would lose the answer on some releases of Node (seen on 22).
  stream.resume();
}
