// A CSI client on one channel to a gateway or a driver. Builds on channel.ts.
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
  type Client,
  type ClientUnaryCall,
  connectivityState,
  Metadata,
  type ServiceError,
  type StatusObject,
} from '@grpc/grpc-js';
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
} from '../csi/status.ts';
import type { Address } from '../runtime/address.ts';
import { type Clock, systemClock, timerMs } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { openChannel, waitUntilConnected } from './channel.ts';
import type { ClientTls } from './credentials.ts';
import { redactError } from './redact-error.ts';

/** How one call is made. */
export interface CallSettings {
  /** Time for the whole call, including the wait for a connection. Also the driver's deadline. */
  readonly timeoutMs: number;
  /** Unix time after which the call must not reach the driver (record rule 3). Checked here and
   * again by the gateway. */
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

/** A request as a message, as the fields of one, or already encoded. */
type RequestOf<I extends DescMessage> = MessageInitShape<I> | Uint8Array;

export interface CsiClientOptions {
  /** Where a gateway listens, or a driver's socket. Without a gateway every failure is ambiguous,
   * because nothing confirms who made the status. */
  readonly address: Address;
  readonly log: Logger;
  /** Largest response accepted; 64 MiB if absent, because gRPC's default of 4 MiB is too small for
   * ListVolumes. */
  readonly maxReceiveBytes?: number;
  readonly clock?: Clock;
  /** Mutual TLS for TCP addresses; plaintext if absent. */
  readonly tls?: ClientTls | undefined;
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
  readonly #stopTlsUpdates: (() => void) | undefined;
  #grpc: Client;
  /** Number of calls under way by channel. A replaced channel is closed when its last call ends. */
  readonly #running = new Map<Client, number>();
  /** When the client was created, or a call began or ended, whichever was last. */
  #lastUseMs: number;

  constructor(options: CsiClientOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#lastUseMs = this.#clock.nowMs();
    this.#grpc = openChannel(options);
    this.#stopTlsUpdates = options.tls?.source.onChange(() => this.#replaceChannel());
  }

  /** For how long no call has been under way, in ms; 0 while one is. */
  get idleMs(): number {
    return this.#running.size > 0 ? 0 : this.#clock.nowMs() - this.#lastUseMs;
  }

  /** Makes new calls use the new certificates. Calls under way stay on their channel. */
  #replaceChannel(): void {
    const old = this.#grpc;
    this.#grpc = openChannel(this.#options);
    if (!this.#running.has(old)) old.close();
  }

  #releaseChannel(grpc: Client): void {
    this.#lastUseMs = this.#clock.nowMs();
    const running = (this.#running.get(grpc) ?? 1) - 1;
    if (running > 0) return void this.#running.set(grpc, running);
    this.#running.delete(grpc);
    if (grpc !== this.#grpc) grpc.close();
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
    // timerMs, because grpc-js sets a timer for the deadline.
    const deadlineMs = startedMs + timerMs(settings.timeoutMs);
    const request = encodeRequest(method, values);
    const grpc = this.#grpc;
    this.#running.set(grpc, (this.#running.get(grpc) ?? 0) + 1);
    try {
      const response = await this.#send(grpc, { path, request, deadlineMs, settings });
      return decodeResponse(method.output, response, path);
    } catch (error) {
      if (!(error instanceof CsiError)) throw error;
      const showsShort = this.#options.showsShortSecrets ?? false;
      throw redactError(error, { schema: method.input, request }, { showsShort });
    } finally {
      this.#releaseChannel(grpc);
    }
  }

  async #send(grpc: Client, call: EncodedCall): Promise<Buffer> {
    const { path, deadlineMs, settings } = call;
    // If grpc-js itself waited for the connection, it would report Unavailable without saying
    // whether the call was sent. Waiting before grpc-js gets the call makes "not sent" certain.
    if (grpc.getChannel().getConnectivityState(true) !== connectivityState.READY)
      await waitUntilConnected(grpc, path, { deadlineMs, signal: settings.signal });
    const fail = (code: number, details: string): never => {
      throw createNotSentError({ method: path, code, details });
    };
    if (settings.signal?.aborted === true) return fail(Code.Canceled, CANCELED_DETAILS);
    const nowMs = this.#clock.nowMs();
    if (nowMs >= deadlineMs) return fail(Code.DeadlineExceeded, DEADLINE_DETAILS);
    const lateMs = nowMs - (settings.notAfterMs ?? Infinity);
    if (lateMs > 0)
      return fail(Code.Aborted, `not sent: its sutler-not-after passed ${lateMs} ms ago`);
    return this.#makeRequest(grpc, call);
  }

  #makeRequest(grpc: Client, encoded: EncodedCall): Promise<Buffer> {
    const { path, request, deadlineMs, settings } = encoded;
    return new Promise((resolve, reject) => {
      let failure: ServiceError | null = null;
      let message: Buffer | undefined;
      const onResponse = (error: ServiceError | null, value?: Buffer): void => {
        failure = error;
        message = value;
      };
      let call: ClientUnaryCall;
      try {
        call = grpc.makeUnaryRequest(
          path,
          toBuffer,
          (bytes: Buffer) => bytes,
          request,
          toMetadata(settings),
          { deadline: deadlineMs },
          onResponse,
        );
      } catch (cause) {
        // Thrown before anything is sent: invalid metadata, or the client was closed meanwhile.
        const details = messageOf(cause);
        const status = { method: path, code: Code.InvalidArgument, details };
        return reject(createNotSentError(status, cause));
      }
      const cancel = (): void => call.cancel();
      settings.signal?.addEventListener('abort', cancel, { once: true });
      // Take the status as it was received: grpc-js turns OK without a message into its own
      // Unimplemented and keeps the trailers, so that it would look like a refusal of the driver.
      // 'status' is emitted right after the callback.
      call.on('status', (status: StatusObject) => {
        settings.signal?.removeEventListener('abort', cancel);
        const trailers = readTrailers(status.metadata);
        settings.onTrailers?.(trailers);
        if (failure === null && message !== undefined) return resolve(message);
        const code: number = status.code;
        const confirmed = code === Code.OK ? {} : trailers;
        const described = this.#describe(failure ?? status, encoded);
        reject(new CsiError({ ...described, ...confirmed, method: path }, { cause: failure }));
      });
    });
  }

  /** Code and details of a failed call. Our own deadline and cancellation get Go's texts, which
   * upstream's events show. */
  #describe(
    { code, details }: { readonly code: number; readonly details: string },
    { deadlineMs, settings }: EncodedCall,
  ): { readonly code: number; readonly details: string } {
    if (code === Code.DeadlineExceeded && this.#clock.nowMs() >= deadlineMs)
      return { code, details: DEADLINE_DETAILS };
    if (code === Code.Canceled && settings.signal?.aborted === true)
      return { code, details: CANCELED_DETAILS };
    return { code, details };
  }

  /** Closes the channel; calls under way end as Canceled. */
  close(): void {
    this.#options.log.debug({ target: this.#grpc.getChannel().getTarget() }, 'CSI client closed');
    this.#stopTlsUpdates?.();
    for (const grpc of new Set([this.#grpc, ...this.#running.keys()])) grpc.close();
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
  response: Buffer,
  path: string,
): MessageShape<O> {
  try {
    return fromBinary(schema, response);
  } catch (cause) {
    const details = `the response to ${path} can't be decoded: ${messageOf(cause)}`;
    throw new CsiError({ code: Code.Internal, details, method: path }, { cause });
  }
}

function toMetadata(settings: CallSettings): Metadata {
  const metadata = new Metadata();
  for (const [key, value] of Object.entries(settings.metadata ?? {})) metadata.set(key, value);
  if (settings.migrated !== undefined) metadata.set(MIGRATED_METADATA, String(settings.migrated));
  if (settings.notAfterMs !== undefined)
    metadata.set(NOT_AFTER_METADATA, String(Math.floor(settings.notAfterMs)));
  return metadata;
}

/** What the gateway says about the status. A driver can't forge it: the gateway removes `sutler-*`
 * trailers of the driver. */
function readTrailers(
  metadata: Metadata,
): Pick<CsiError, 'driverSaid' | 'notForwarded' | 'isGatewayFull' | 'draining'> {
  const [draining] = metadata.get(DRAINING_TRAILER);
  const isCount = typeof draining === 'string' && /^\d{1,9}$/.test(draining);
  return {
    driverSaid: metadata.get(DRIVER_STATUS_TRAILER)[0] === '1',
    notForwarded: metadata.get(NOT_FORWARDED_TRAILER)[0] === '1',
    isGatewayFull: metadata.get(FULL_TRAILER)[0] === '1',
    draining: isCount ? Number(draining) : undefined,
  };
}

function toBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes)
    ? bytes
    : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
