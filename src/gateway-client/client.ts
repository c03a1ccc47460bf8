import {
  create,
  type DescMessage,
  type DescMethodUnary,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from '@bufbuild/protobuf';
import {
  decompressMessage,
  formatTimeout,
  frameMessage,
  getSingle,
  type HeaderPairs,
} from '../csi/grpc-wire.ts';
import { Controller, Identity, Node } from '../csi/generated/csi_pb.ts';
import { methodPath } from '../csi/methods.ts';
import {
  CANCELED_DETAILS,
  Code,
  createNotSentError,
  CsiError,
  DEADLINE_DETAILS,
  DRAINING_TRAILER,
  DRIVER_STATUS_TRAILER,
  FULL_TRAILER,
  MIGRATED_METADATA,
  NOT_AFTER_METADATA,
  NOT_FORWARDED_TRAILER,
  TIME_TRAILER,
  tooLateDetails,
} from '../csi/status.ts';
import type { Address } from '../runtime/address.ts';
import { type Clock, systemClock, timerMs } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { Channel } from './channel.ts';
import { answerLimit, type UnaryAnswer, type UnaryResponse } from '../csi/unary-call.ts';
import type { ClientTls } from './credentials.ts';
import { GatewayClock } from './gateway-clock.ts';
import { redactError } from '../csi/redact-secrets.ts';

/** How one call is made. */
export interface CallSettings {
  /** Time for the whole call, including the wait for a connection. Also the driver's deadline. */
  readonly timeoutMs: number;
  /** Unix time, by the clock of this process, after which the call must not reach the driver
   * (docs/leak-proof.md, M2). Checked here and again by the gateway, to which it is sent in the
   * gateway's own time. */
  readonly notAfterMs?: number;
  /** Cancels the call: it ends as Canceled, ambiguous unless it was not sent yet. */
  readonly signal?: AbortSignal;
  /** Whether the volume comes from an in-tree plug-in; a label of the gateway's metrics. */
  readonly migrated?: boolean;
  /** Further request metadata. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** Called before the promise settles, for OK as well: what the gateway says about the status. */
  readonly onTrailers?: (trailers: Pick<CsiError, 'driverSaid' | 'notForwarded'>) => unknown;
}

const HEALTH = '/grpc.health.v1.Health/Check';
const ASK_TIME_MS = 1_000;
/** How often one call is sent at most, if connections refuse it. */
const MAX_TRIES = 3;

/** gRPC's default of 4 MiB is too small for ListVolumes. */
const MAX_RECEIVE_BYTES = 64 * 1024 * 1024;

/** A request as a message, as the fields of one, or already encoded. */
type RequestOf<I extends DescMessage> = MessageInitShape<I> | Uint8Array;

export interface CsiClientOptions {
  /** Where a gateway listens, or a driver's socket. Without a gateway every failure is ambiguous,
   * because nothing confirms who made the status. */
  readonly address: Address;
  readonly log: Logger;
  /** Largest list accepted; 64 MiB if absent. */
  readonly maxReceiveBytes?: number;
  readonly clock?: Clock;
  /** Mutual TLS for TCP addresses; plaintext if absent. */
  readonly tls?: ClientTls | undefined;
  /** Metadata of all its requests. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** Whether an error shows the driver's words although a secret of the call is too short to be
   * struck from them. */
  readonly showsShortSecrets?: boolean;
}

/** One channel to a gateway or a driver. It connects when the first call is made, and finds a
 * socket that appears later within about 2 s. Every call rejects with CsiError and nothing else,
 * whose text has none of the secrets of the request. */
export class CsiClient {
  readonly probe = this.#query(Identity.method.probe);
  readonly getPluginInfo = this.#query(Identity.method.getPluginInfo);
  readonly getPluginCapabilities = this.#query(Identity.method.getPluginCapabilities);
  readonly controllerGetCapabilities = this.#query(Controller.method.controllerGetCapabilities);
  readonly nodeGetInfo = this.#query(Node.method.nodeGetInfo);
  readonly createVolume = this.#method(Controller.method.createVolume);
  readonly deleteVolume = this.#method(Controller.method.deleteVolume);
  readonly getCapacity = this.#method(Controller.method.getCapacity);
  readonly listVolumes = this.#method(Controller.method.listVolumes);
  readonly controllerGetVolume = this.#method(Controller.method.controllerGetVolume);
  readonly controllerModifyVolume = this.#method(Controller.method.controllerModifyVolume);
  readonly #options: CsiClientOptions;
  readonly #clock: Clock;
  readonly #gatewayClock: GatewayClock;
  readonly #stopTlsUpdates: (() => void) | undefined;
  #channel: Channel;
  /** Channels that were replaced, each until its last call ends. */
  readonly #replaced = new Set<Channel>();
  /** When the client was created, or a call began or ended, whichever was last. */
  #lastUseMs: number;

  constructor(options: CsiClientOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#gatewayClock = new GatewayClock(this.#clock);
    this.#lastUseMs = this.#clock.nowMs();
    this.#channel = this.#createChannel();
    this.#stopTlsUpdates = options.tls?.source.onChange(() => this.#replaceChannel());
  }

  /** For how long no call has been under way, in ms; 0 while one is. */
  get idleMs(): number {
    const isBusy = this.#channel.calls > 0 || this.#replaced.size > 0;
    return isBusy ? 0 : this.#clock.nowMs() - this.#lastUseMs;
  }

  /** How far the gateway's clock is ahead of this process's, in ms; undefined while it is not
   * known, or of a gateway that does not send its time. */
  get aheadMs(): number | undefined {
    return this.#gatewayClock.aheadMs;
  }

  #createChannel(): Channel {
    const { address, maxReceiveBytes = MAX_RECEIVE_BYTES, tls } = this.#options;
    return new Channel({ address, maxReceiveBytes, tls });
  }

  /** Makes new calls use the new certificates. Calls under way stay on their channel. */
  #replaceChannel(): void {
    const old = this.#channel;
    this.#channel = this.#createChannel();
    if (old.calls > 0) this.#replaced.add(old);
    else old.close();
  }

  #releaseChannel(channel: Channel): void {
    this.#lastUseMs = this.#clock.nowMs();
    channel.calls -= 1;
    if (channel.calls === 0 && this.#replaced.delete(channel)) channel.close();
  }

  /** @returns a function that calls the method */
  #method<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
  ): (request: RequestOf<I>, settings: CallSettings) => Promise<MessageShape<O>> {
    return (request, settings) => this.call(method, request, settings);
  }

  /** @returns a function that calls the method with an empty request */
  #query<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
  ): (settings: CallSettings) => Promise<MessageShape<O>> {
    return (settings) => this.call(method, new Uint8Array(0), settings);
  }

  /** Calls any unary method. */
  async call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    values: RequestOf<I>,
    settings: CallSettings,
  ): Promise<MessageShape<O>> {
    const path = methodPath(method);
    const startedMs = this.#clock.nowMs();
    this.#lastUseMs = startedMs;
    // timerMs, because it becomes a timer.
    const deadlineMs = startedMs + timerMs(settings.timeoutMs);
    const request = encodeRequest(method, values);
    try {
      const response = await this.#sendUntilTaken({ path, request, deadlineMs, settings });
      return decodeResponse(method.output, response, path);
    } catch (error) {
      if (!(error instanceof CsiError)) throw error;
      const showsShort = this.#options.showsShortSecrets ?? false;
      throw redactError(error, { schema: method.input, request }, { showsShort });
    }
  }

  /** Sends a call, and sends it again on a new connection if the one it was sent on refused it,
   * because it was just being closed. Such a call was not processed, but only the other side's
   * HTTP/2 says so, so every error after it is ambiguous. */
  async #sendUntilTaken(call: EncodedCall): Promise<Uint8Array> {
    for (let tries = 1; ; tries += 1) {
      const channel = this.#channel;
      channel.calls += 1;
      try {
        const answer = await this.#send(channel, call);
        if (answer.kind === 'refused' && tries < MAX_TRIES) continue;
        return this.#readAnswer(answer, call, channel);
      } catch (error) {
        if (tries === 1 || !(error instanceof CsiError)) throw error;
        const { code, details, method } = error;
        throw new CsiError({ code, details, method });
      } finally {
        this.#releaseChannel(channel);
      }
    }
  }

  /** @throws CsiError if it is not to be sent */
  async #send(channel: Channel, call: EncodedCall): Promise<UnaryAnswer> {
    const { path, request, deadlineMs, settings } = call;
    const { signal } = settings;
    await this.#prepare(channel, call);
    const fail = (code: number, details: string): never => {
      throw createNotSentError({ method: path, code, details });
    };
    if (signal?.aborted === true) return fail(Code.Canceled, CANCELED_DETAILS);
    const nowMs = this.#clock.nowMs();
    const timeoutMs = deadlineMs - nowMs;
    if (timeoutMs <= 0) return fail(Code.DeadlineExceeded, DEADLINE_DETAILS);
    const lateMs = nowMs - (settings.notAfterMs ?? Infinity);
    if (lateMs > 0) return fail(Code.Aborted, tooLateDetails(lateMs));
    const metadata = { ...this.#options.metadata, ...settings.metadata };
    const clocks = { timeoutMs, aheadMs: this.aheadMs ?? 0 };
    const headers = toHeaders({ ...settings, metadata }, clocks);
    if (headers === undefined)
      return fail(
        Code.InvalidArgument,
        'not sent: its metadata has a key or value that gRPC forbids',
      );
    const body = frameMessage(request);
    const answer = await channel.send({ path, headers, body, timeoutMs, signal });
    if (answer.kind === 'answered') this.#readGateway(answer, nowMs);
    return answer;
  }

  /** Waits until the channel is connected and, for a call with a limit, the gateway's time is
   * known. */
  async #prepare(channel: Channel, { path, deadlineMs, settings }: EncodedCall): Promise<void> {
    const { signal, notAfterMs } = settings;
    if (!channel.isConnected)
      await channel.waitUntilConnected({ path, ms: deadlineMs - this.#clock.nowMs(), signal });
    if (notAfterMs !== undefined && this.#gatewayClock.isOutdated)
      await this.#askTime(channel, signal);
  }

  /** What the answer says of the gateway itself.
   * @param sentMs  when the call was sent */
  #readGateway({ trailers }: UnaryResponse, sentMs: number): void {
    this.#gatewayClock.learn(sentMs, getSingle(trailers, TIME_TRAILER));
  }

  /** Has the gateway's health service, which does not ask the driver, tell the time. Whether it
   * answers does not matter: it may not have that service, or be an old one. */
  async #askTime(channel: Channel, signal: AbortSignal | undefined): Promise<void> {
    const sentMs = this.#clock.nowMs();
    const timeoutMs = ASK_TIME_MS;
    const headers = { 'grpc-timeout': formatTimeout(timeoutMs) };
    const body = frameMessage(new Uint8Array(0));
    const answer = await channel.send({ path: HEALTH, headers, body, timeoutMs, signal });
    if (answer.kind === 'answered') this.#readGateway(answer, sentMs);
  }

  /** The message of an answer.
   * @throws CsiError if there is none */
  #readAnswer(answer: UnaryAnswer, call: EncodedCall, channel: Channel): Uint8Array {
    const { path, settings } = call;
    if (answer.kind === 'not-sent') throw createNotSentError({ method: path, ...answer });
    const said = answer.kind === 'answered' ? readVerdict(answer.trailers) : UNCONFIRMED;
    settings.onTrailers?.(said);
    if (answer.kind === 'answered' && answer.code === Code.OK)
      return this.#readMessage(answer, path);
    throw new CsiError({ ...this.#explainFailure(answer, call, channel), ...said, method: path });
  }

  /** Our own deadline and cancellation get Go's texts, which upstream's events show. */
  #explainFailure(
    { kind, code, details }: UnaryAnswer,
    { deadlineMs, settings }: EncodedCall,
    channel: Channel,
  ): { readonly code: number; readonly details: string } {
    if (code === Code.DeadlineExceeded && this.#clock.nowMs() >= deadlineMs)
      return { code, details: DEADLINE_DETAILS };
    if (code === Code.Canceled && settings.signal?.aborted === true)
      return { code, details: CANCELED_DETAILS };
    if (kind !== 'answered' && channel.isClosed)
      return { code: Code.Canceled, details: 'the client was closed' };
    return { code, details };
  }

  #readMessage({ body, headers }: UnaryResponse, path: string): Uint8Array {
    const encoding = getSingle(headers ?? [], 'grpc-encoding');
    const maxBytes = answerLimit(path, this.#options.maxReceiveBytes ?? MAX_RECEIVE_BYTES);
    const message = decompressMessage(body, encoding, maxBytes);
    if (message !== undefined) return message;
    const details =
      `the response to ${path} can't be decompressed, or has more than ${maxBytes} bytes then ` +
      `(grpc-encoding ${encoding ?? 'missing'})`;
    throw new CsiError({ code: Code.Internal, details, method: path });
  }

  /** Closes the channel; calls under way end as Canceled. */
  close(): void {
    this.#options.log.debug({ target: this.#channel.address }, 'CSI client closed');
    this.#stopTlsUpdates?.();
    for (const channel of [this.#channel, ...this.#replaced]) channel.close();
  }
}

interface EncodedCall {
  readonly path: string;
  readonly request: Uint8Array;
  readonly deadlineMs: number;
  readonly settings: CallSettings;
}

function encodeRequest<I extends DescMessage>(
  method: DescMethodUnary<I>,
  request: RequestOf<I>,
): Uint8Array {
  if (request instanceof Uint8Array) return request;
  try {
    return toBinary(method.input, create(method.input, request));
  } catch (cause) {
    const details = `the request can't be encoded: ${messageOf(cause)}`;
    throw createNotSentError(
      { method: methodPath(method), code: Code.InvalidArgument, details },
      cause,
    );
  }
}

function decodeResponse<O extends DescMessage>(
  schema: O,
  response: Uint8Array,
  path: string,
): MessageShape<O> {
  try {
    return fromBinary(schema, response);
  } catch (cause) {
    const details = `the response to ${path} can't be decoded: ${messageOf(cause)}`;
    throw new CsiError({ code: Code.Internal, details, method: path }, { cause });
  }
}

/** The headers of a request; undefined if its metadata can't be sent.
 * @param o.aheadMs  how far the gateway's clock is ahead */
function toHeaders(
  { metadata, migrated, notAfterMs }: CallSettings,
  { timeoutMs, aheadMs }: { readonly timeoutMs: number; readonly aheadMs: number },
): Record<string, string> | undefined {
  const headers: Record<string, string> = { 'grpc-timeout': formatTimeout(timeoutMs) };
  for (const [key, value] of Object.entries(metadata ?? {})) {
    if (!/^[0-9a-z_.-]+$/.test(key) || !/^[\x20-\x7e]*$/.test(value)) return undefined;
    headers[key] = value;
  }
  if (migrated !== undefined) headers[MIGRATED_METADATA] = String(migrated);
  if (notAfterMs !== undefined)
    headers[NOT_AFTER_METADATA] = String(Math.floor(notAfterMs + aheadMs));
  return headers;
}

type GatewayVerdict = Pick<CsiError, 'driverSaid' | 'notForwarded' | 'isGatewayFull' | 'draining'>;

/** For a call without a status of its peer. */
const UNCONFIRMED: GatewayVerdict = {
  driverSaid: false,
  notForwarded: false,
  isGatewayFull: false,
  draining: undefined,
};

/** What the gateway says about the status. A driver can't forge it: the gateway removes `sutler-*`
 * trailers of the driver. */
function readVerdict(trailers: HeaderPairs): GatewayVerdict {
  const draining = getSingle(trailers, DRAINING_TRAILER);
  const isCount = draining !== undefined && /^\d{1,9}$/.test(draining);
  return {
    driverSaid: getSingle(trailers, DRIVER_STATUS_TRAILER) === '1',
    notForwarded: getSingle(trailers, NOT_FORWARDED_TRAILER) === '1',
    isGatewayFull: getSingle(trailers, FULL_TRAILER) === '1',
    draining: isCount ? Number(draining) : undefined,
  };
}
