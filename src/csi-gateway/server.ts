import type { Server as SocketServer, Socket } from 'node:net';
import {
  logVerbosity,
  Metadata,
  type sendUnaryData,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  setLogVerbosity,
} from '@grpc/grpc-js';
import type { Registry } from 'prom-client';
import { getSingle, type HeaderPairs, isHopHeader, stripHopHeaders } from '../csi/grpc-wire.ts';
import { methodsByPath } from '../csi/methods.ts';
import {
  Code,
  CsiError,
  DRAINING_TRAILER,
  DRIVER_STATUS_TRAILER,
  FULL_TRAILER,
  MIGRATED_METADATA,
  NOT_FORWARDED_TRAILER,
  TIME_TRAILER,
} from '../csi/status.ts';
import {
  type DriverCall,
  DriverCalls,
  type DriverReply,
  type Reply,
} from '../driver/driver-calls.ts';
import { DriverConnection, type DriverConnectionOptions } from '../driver/driver-connection.ts';
import { createDriverMetrics, type DriverMetrics } from '../driver/metrics.ts';
import type { Address } from '../runtime/address.ts';
import { messageOf } from '../runtime/error-message.ts';
import { type AdmissionRules, findRefusal, readNotAfterMs } from './admission.ts';
import { addHealthService } from './health-service.ts';
import { type Caller, createListener, listen, type ListenerTls } from './listener.ts';

export interface GatewayOptions
  extends Omit<DriverConnectionOptions, 'address' | 'metrics'>, AdmissionRules {
  /** The driver's socket. */
  readonly driver: Address;
  readonly listen: readonly Address[];
  /** For listeners on TCP; plaintext if absent. */
  readonly tls?: ListenerTls | undefined;
  /** Whether plaintext TCP beyond loopback is allowed. */
  readonly insecure?: boolean;
  /** Most calls at the driver at once, not counting Identity calls. */
  readonly maxInFlight: number;
  /** Whether each call is logged with its messages, without secrets. */
  readonly logsMessages: boolean;
  readonly metrics: Registry;
}

type Call = ServerUnaryCall<Buffer, Buffer>;

/** Most open streams of a connection; further calls wait in the caller. */
const MAX_STREAMS = 1_024;
/** The gateway sends a PING after the first time, and closes a connection whose PING is not
 * answered within the second. */
const KEEPALIVE_MS = 60_000;
const KEEPALIVE_TIMEOUT_MS = 20_000;
/** How long calls under way may go on after a change of the authorities that sign callers. */
const RETIRE_MS = 3_600_000;
/** Time for callers to read their last answer after the drain. */
const FLUSH_MS = 1_000;
/** How long the gateway reports that it is drained. Ingest asks at least once a second, and then
 * moves to another gateway at once (src/ingest/gateway-failover.ts). */
const DRAINED_MS = 1_500;
/** Most characters in a text of the gateway itself. */
const MAX_DETAILS_CHARACTERS = 1_000;

/** The gateway: a gRPC server of grpc-js that passes messages to the driver as bytes. Its
 * connections come from sutler's own listeners, which decide who may call before HTTP/2 begins. */
export class Gateway {
  readonly #options: GatewayOptions;
  readonly #driver: DriverConnection;
  readonly #driverCalls: DriverCalls;
  readonly #metrics: DriverMetrics;
  readonly #server: Server;
  readonly #listeners: readonly { readonly address: Address; readonly server: SocketServer }[];
  /** Callers with a certificate, by `address:port` of their connection. */
  readonly #callers = new Map<string, Caller>();
  /** What cancels each call under way. */
  readonly #calls = new Set<AbortController>();
  #isDraining = false;
  #onIdle: () => void = () => undefined;
  readonly #stopTlsUpdates: (() => void) | undefined;
  /** Takes connections of callers that the current authorities have identified. */
  #injector: ReturnType<Server['createConnectionInjector']>;

  constructor(options: GatewayOptions) {
    const { log, maxMessageBytes, maxRequestBytes, tls } = options;
    const metrics = createDriverMetrics(options.metrics);
    const driver = new DriverConnection({ ...options, address: options.driver, metrics });
    this.#options = options;
    this.#driver = driver;
    this.#driverCalls = new DriverCalls({ ...options, driver, metrics });
    this.#metrics = metrics;
    // grpc-js would print values of metadata to standard error.
    setLogVerbosity(logVerbosity.NONE);
    this.#server = new Server({
      'grpc.max_concurrent_streams': MAX_STREAMS,
      // Twice the limit, since grpc-js does not report that the driver got nothing.
      'grpc.max_receive_message_length': 2 * maxRequestBytes,
      'grpc.max_send_message_length': maxMessageBytes,
      'grpc.keepalive_time_ms': KEEPALIVE_MS,
      'grpc.keepalive_timeout_ms': KEEPALIVE_TIMEOUT_MS,
    });
    for (const path of methodsByPath.keys())
      this.#server.register(
        path,
        (call: Call, answer: sendUnaryData<Buffer>) => void this.#handle(path, call, answer),
        asItIs,
        asItIs,
        'unary',
      );
    const isServing = (): boolean => !this.#isDraining && this.trouble === undefined;
    addHealthService(this.#server, isServing, () => this.#facts());
    this.#injector = this.#createInjector();
    this.#listeners = options.listen.map((address) => {
      const accept = (socket: Socket, caller?: Caller): void => this.#accept(socket, caller);
      const server = createListener(address.kind === 'tcp' ? tls : undefined, accept, log);
      return { address, server };
    });
    this.#stopTlsUpdates = tls?.source.onChange((next, before) => {
      if (next.ca !== before.ca) this.#retireCallers();
    });
  }

  /** Why the driver is not ready; undefined if it is. */
  get trouble(): string | undefined {
    return this.#driver.trouble;
  }

  #accept(socket: Socket, caller: Caller | undefined): void {
    this.#metrics.changeConnections(1);
    // The name that grpc-js gives the peer.
    const peer = `${socket.remoteAddress}:${socket.remotePort}`;
    if (caller !== undefined) this.#callers.set(peer, caller);
    socket.once('close', () => {
      this.#metrics.changeConnections(-1);
      this.#callers.delete(peer);
    });
    // grpc-js gets the error too, and ends the calls.
    socket.on('error', () => undefined);
    this.#injector.injectConnection(socket);
  }

  /** Makes all callers do a new handshake. Calls under way go on. */
  #retireCallers(): void {
    for (const [peer, { name }] of this.#callers) this.#callers.set(peer, { name, endMs: 0 });
    this.#injector.drain(RETIRE_MS);
    this.#injector = this.#createInjector();
  }

  /** Trailers of every answer, with facts about the gateway. */
  #facts(): Metadata {
    const metadata = new Metadata();
    metadata.set(TIME_TRAILER, String(this.#options.clock.nowMs()));
    return metadata;
  }

  #createInjector(): ReturnType<Server['createConnectionInjector']> {
    // The listener does TLS.
    return this.#server.createConnectionInjector(ServerCredentials.createInsecure());
  }

  /** Starts to listen, and to connect to the driver. Does not wait for the driver.
   * @returns the bound addresses, in the order of the options
   * @throws UsageError as listen() does, after closing all listeners */
  async start(): Promise<readonly Address[]> {
    const { insecure, tls } = this.#options;
    const beyondLoopback = insecure === true || tls !== undefined;
    const bound: Address[] = [];
    try {
      for (const { address, server } of this.#listeners)
        bound.push(await listen(server, address, { beyondLoopback }));
      this.#driver.start();
      return bound;
    } catch (error) {
      this.#stopTlsUpdates?.();
      for (const { server } of this.#listeners) server.close();
      throw error;
    }
  }

  /** Refuses new calls as not forwarded. Waits at most `graceMs` for calls under way, ends the
   * others as ambiguous, and closes. */
  async close(graceMs: number): Promise<void> {
    const { clock, log } = this.#options;
    this.#isDraining = true;
    const calls = this.#calls.size;
    if (calls > 0) log.info({ calls, graceMs }, 'waiting for calls under way');
    const isOver = new AbortController();
    this.#onIdle = () => isOver.abort();
    if (calls > 0) await clock.sleep(graceMs, isOver.signal);
    if (this.#calls.size > 0)
      log.warn(
        { calls: this.#calls.size },
        'the grace period is over; calls under way end as ambiguous',
      );
    const details = 'the gateway stopped before the driver answered';
    for (const gone of this.#calls)
      gone.abort(new CsiError({ code: Code.Unavailable, details, method: '' }));
    // Without this, ingest would have to wait until calls under way here must have ended.
    await clock.sleep(Math.min(graceMs, DRAINED_MS));
    await this.#closeServer();
    await this.#driver.close();
  }

  async #closeServer(): Promise<void> {
    const { clock } = this.#options;
    this.#stopTlsUpdates?.();
    const isClosed = new AbortController();
    const closed = this.#listeners.map(
      ({ server }) => new Promise((resolve) => server.close(resolve)),
    );
    void Promise.all(closed).then(() => isClosed.abort());
    // Asks callers to disconnect. On Node 26 its callback comes before the last answers are sent,
    // so it is not used. The listeners close when no connection is left.
    this.#server.tryShutdown(() => undefined);
    await clock.sleep(FLUSH_MS, isClosed.signal);
    this.#server.forceShutdown();
  }

  async #handle(path: string, call: Call, answer: sendUnaryData<Buffer>): Promise<void> {
    const gone = new AbortController();
    // 'cancelled' also comes when an answered call closes.
    call.on('cancelled', () => {
      if (this.#calls.has(gone)) gone.abort('the caller is gone');
    });
    this.#calls.add(gone);
    try {
      this.#answer(await this.#forward(path, call, gone.signal), call, answer);
    } catch (error) {
      this.#options.log.error({ err: error, method: path }, 'a call failed in the gateway');
      const details = 'the gateway failed while it handled the call; its log says why';
      this.#answerOwn({ kind: 'ambiguous', code: Code.Internal, details }, answer);
    } finally {
      this.#calls.delete(gone);
      if (this.#calls.size === 0) this.#onIdle();
    }
  }

  async #forward(path: string, call: Call, signal: AbortSignal): Promise<Reply> {
    const { clock } = this.#options;
    const peer = call.getPeer();
    const caller = this.#callers.get(peer);
    const metadata = toPairs(call.metadata);
    const forwarded: DriverCall = {
      path,
      message: call.request,
      headers: stripHopHeaders(metadata),
      deadlineMs: clock.nowMs() + Number(call.getDeadline()) - Date.now(),
      notAfterMs: readNotAfterMs(metadata),
      migrated: getSingle(metadata, MIGRATED_METADATA) === 'true',
      caller: caller?.name ?? (peer === 'unknown' ? 'unix' : peer),
      signal,
    };
    const hasEnded = caller !== undefined && caller.endMs < Date.now();
    const now = { hasEnded, isDraining: this.#isDraining };
    const refusal = findRefusal(forwarded, metadata, this.#options, now);
    if (refusal === undefined) return this.#driverCalls.send(forwarded);
    const { reason, code, details } = refusal;
    return this.#driverCalls.refuse(forwarded, reason, code, details);
  }

  #answer(reply: Reply, call: Call, answer: sendUnaryData<Buffer>): void {
    if (reply.kind === 'driver') this.#answerDriver(reply, call, answer);
    else this.#answerOwn(reply, answer);
  }

  /** Answers with a status that the gateway made. */
  #answerOwn(reply: Exclude<Reply, DriverReply>, answer: sendUnaryData<Buffer>): void {
    const metadata = this.#facts();
    if (reply.kind === 'not-forwarded') {
      metadata.set(NOT_FORWARDED_TRAILER, '1');
      if (reply.reason === 'max-in-flight') metadata.set(FULL_TRAILER, '1');
      if (reply.reason === 'draining')
        metadata.set(DRAINING_TRAILER, String(this.#driverCalls.busyVolumes));
    }
    const details = toWellFormed(reply.details.slice(0, MAX_DETAILS_CHARACTERS));
    answer({ code: reply.code, details, metadata });
  }

  /** Passes on the driver's answer, and marks it as the driver's. */
  #answerDriver(reply: DriverReply, call: Call, answer: sendUnaryData<Buffer>): void {
    const { code, details, headers, trailers, message } = reply;
    const metadata = this.#facts();
    const initial = new Metadata();
    try {
      addPairs(metadata, trailers);
      addPairs(initial, headers);
    } catch (error) {
      // The driver has acted, but its answer is lost.
      const why = `the driver's answer has a header that can't be forwarded: ${messageOf(error)}`;
      return this.#answerOwn({ kind: 'ambiguous', code: Code.Internal, details: why }, answer);
    }
    metadata.set(DRIVER_STATUS_TRAILER, '1');
    if (Object.keys(initial.getMap()).length > 0) call.sendMetadata(initial);
    if (code === Code.OK) answer(null, message, metadata);
    else answer({ code, details: toWellFormed(details), metadata });
  }
}

function asItIs(message: Buffer): Buffer {
  return message;
}

/** grpc-js encodes texts with encodeURI, which throws for half a surrogate pair. */
function toWellFormed(text: string): string {
  return Buffer.from(text).toString();
}

function toPairs(metadata: Metadata): HeaderPairs {
  return Object.entries(metadata.toHttp2Headers()).flatMap(([name, values]) =>
    [values ?? []].flat().map((value) => [name, String(value)] as const),
  );
}

/** Adds headers of the driver, except for hop headers.
 * @throws Error for a header that can't be sent */
function addPairs(metadata: Metadata, pairs: HeaderPairs): void {
  for (const [name, value] of pairs) {
    if (isHopHeader(name)) continue;
    if (!name.endsWith('-bin')) metadata.add(name, value);
    else for (const part of value.split(',')) metadata.add(name, Buffer.from(part, 'base64'));
  }
}
